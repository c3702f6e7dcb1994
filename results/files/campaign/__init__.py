"""The campaign file: all runs in long form (docs/results.md), made, opened, read back.

From outside: `campaignread`, `campaignfile`, `merge`, `rows`.
"""
