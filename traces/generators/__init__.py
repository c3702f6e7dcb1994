"""Traces that are generated, not captured: any block of them, from a seed, in constant memory.

From outside: `page_cache`.  They run in ranks:
numpy and the standard library only.
"""
