"""What a collection of IO500 submissions says: scores checked, families, phases, one's own run.

From outside: `study`, `chart`, `result`.
"""
