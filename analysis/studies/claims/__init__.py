"""Findings of a study as statements that a campaign confirms, refutes or cannot test.

From outside: `claims`, `claims_file`, `claims_result`.
"""
