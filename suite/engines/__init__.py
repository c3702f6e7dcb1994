"""External programs: where they are, which version, what a build can do.  A file for each.

From outside: `engine`, and each engine by the registry.
"""
