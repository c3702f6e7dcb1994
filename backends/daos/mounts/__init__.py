"""DFUSE: how it is mounted and ended on a node, how it caches, and which library goes around it.

From outside: `interception`, `options`.
"""
