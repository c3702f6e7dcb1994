"""HDF5 as both files use it: the schema, checks of files that others made, a full disk.

From outside: `hdf`, `schema`, `check`.
"""
