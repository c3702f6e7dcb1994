"""DAOS by its own tools: pools, containers, and what they say of themselves.

From outside: `dfs` (the backend `daos-dfs`), `rollback` (its kinds of journal entries).
"""
