"""Batch systems: the interface to schedulers, Slurm itself, and the text of a job.

From outside: `here` (whose job this process is), `scheduler`, `submission`, `testbed`.
"""
