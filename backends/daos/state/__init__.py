"""What a DAOS system is and does: facts, health, settling, counters of engines.

From outside: `facts`, `health`, `settle`, `counters`, `engines`.
"""
