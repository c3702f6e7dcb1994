"""Batch systems: the scheduler seam, Slurm itself, and the text of a job.

From outside: `here` (whose job this process is), `scheduler`, `submission`, `testbed`.
"""
