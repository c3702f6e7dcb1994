"""What a cluster does meanwhile: health, counters of OSDs, scrubs, caches, networks.

From outside: all of it; it only asks, but for the caches that it drops.
"""
