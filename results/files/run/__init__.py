"""The run file: one record as one HDF5 file, and back again exactly.

From outside: `runfile`, `recordcheck`, `texts`, `phases`.
"""
