"""A real Slurm on one machine: brought up, and taken down with all that its jobs left.

From outside: `testbed`.
"""
