"""What is done on a target, as lists of steps.  A file or package for each.

From outside: `base`, and each workload by the registry.
"""
