"""Run files, campaign files and the store: written whole or not at all, checked when read.

From outside: `store`, `trust`, `safefile`, `atomic_write`, `lock`, and the formats below.
"""
