"""Batch systems: the interface to schedulers, Slurm itself, and the text of a job.

From outside: `scheduler` (whose job this process is), `submission`, `submitting`, `testbed`.
"""
