"""The player: chunks of operations carried out on a driver, every latency recorded.

From outside: `ops`, `player`, `content`, `result`.  C in `native`, pure Python in `python`; imports
nothing heavy, since every rank loads it.
"""
