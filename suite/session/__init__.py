"""One MPI world for a whole plot: ranks, node leaders, clocks, timed steps.

From outside: `client` (the conductor's side), `survey`, `programs`.  What runs in ranks imports
numpy, mpi4py and the standard library only.
"""
