"""Traces: the file operations of a program, recorded to be examined and replayed.

From outside: `trace_model`, `tracefile`; where traces come from: the folders `capture` and
`importing`, and `page_cache`, which generates them; and their properties (`statistics`).
"""
