"""The player in pure Python: the same operations and records as the one in C.

From outside: `player`, by the player of that name alone.
"""
