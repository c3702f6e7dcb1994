"""Growth over storage nodes: speed-up, efficiency and the laws that fit.

From outside: `scalability`, `laws`.
"""
