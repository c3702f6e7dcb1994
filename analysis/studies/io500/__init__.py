"""What a collection of IO500 submissions says: scores checked, families, phases, one's own run.

From outside: `io500_study`, `io500_chart`, `io500_result`.
"""
