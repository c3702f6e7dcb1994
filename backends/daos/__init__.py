"""DAOS by its own tools: pools, containers, and what they say of themselves.

From outside: `dfs` (the backend `daos-dfs`), `tool`.
"""
