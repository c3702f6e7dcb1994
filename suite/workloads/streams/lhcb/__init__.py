"""The LHCb analysis of the workload `rntuple`: events, cuts, and the programs that store them.

From outside: `analysis`, and `program` by its path.  A program may run in a
Python that has ROOT and not fsmatrix's libraries: numpy and the standard library only, Python 3.9.
"""
