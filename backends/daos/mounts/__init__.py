"""DFUSE as the suite mounts it: the program, its options, caches, and libraries around it.

From outside: `dfuse_mount` (what node leaders do), `options`, `interception`.
"""
