"""Where bandwidth stops growing, and what is at its limit there.

From outside: `bottleneck`, `traffic`.
"""
