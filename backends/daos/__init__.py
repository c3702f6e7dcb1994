"""DAOS by its own tools: pools, containers, and what they say of themselves.

From outside: the backends by the registry, `rollback` (its kinds of journal entries).
"""
