"""Run files, campaign files and the store: written whole or not at all, checked when read.

From outside: `store`, `trust`, `safefile`, `lock`, `errors`, and the formats below.
"""
