"""The player in pure Python: the same operations and records as the one in C.

From outside: `twin`, by `player` alone.
"""
