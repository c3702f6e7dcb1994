"""What a campaign teaches, in sentences with numbers and intervals; it estimates nothing itself.

From outside: `lessons`, `overall`, `ranking`.
"""
