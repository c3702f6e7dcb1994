"""The page (and the terminal's tables) that tells a campaign's answer and how sure it is.

From outside: `report`, `sections`, `terminal`; only the command line imports it.
"""
