"""What a campaign's text means: targets and workloads with their classes, factors, and the cases.

From outside: `cases`, `resolve`, `target`.
"""
