"""The player: chunks of operations carried out on a driver, every latency recorded.

From outside: `ops`, `player`, `lanes`, `content`.  C in `native`, pure Python in `python_player`;
imports nothing heavy, since every rank loads it.
"""
