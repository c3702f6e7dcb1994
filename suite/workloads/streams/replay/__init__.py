"""The op streams of the workload `replay`: a trace's file tree, and its operations played again.

From outside: `generate` and `tree` by their path, and `survey` for planning.  They run in ranks:
h5py is loaded only where a trace file is opened.
"""
