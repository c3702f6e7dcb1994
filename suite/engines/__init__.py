"""External programs: where they are, which version, what a build can do.  A file for each.

From outside: `base`, and each engine by the registry.
"""
