"""How processes are started on nodes: locally, by mpirun, mpiexec or srun.  A file for each.

From outside: `launcher`, and each launcher by the registry.
"""
