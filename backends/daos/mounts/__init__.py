"""DFUSE as the suite mounts it: the program, its options, caches, and libraries around it.

From outside: `attached` (what node leaders do), `options`, `program`, `interception`.
"""
