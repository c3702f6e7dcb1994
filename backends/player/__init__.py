"""The player: chunks of operations carried out on a driver, every latency recorded.

From outside: `ops`, `player`, `drivers`, `played`.  C in `native`, pure Python in `twin`; imports
nothing heavy, since every rank loads it.
"""
