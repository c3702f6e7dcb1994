"""What a cluster is and does: facts, placement, health, counters of OSDs, caches, networks.

From outside: all of it; it only asks, but for caches that it drops and groups that it evens out.
"""
