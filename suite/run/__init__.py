"""A plan carried out: conductor, runs on sessions, records, and whatever breaks on the way.

From outside: `execute`, `forecast`, `events`.
"""
