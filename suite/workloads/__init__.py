"""What is done on a target, as lists of steps.  A file for each, or two.

From outside: `workload`, and each workload by the registry.
"""
