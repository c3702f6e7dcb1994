"""Traces: the file operations of a program, recorded to be examined and replayed.

From outside: `model`, `writer`, `reader`, and the folders: where traces come
from (`capture`, `importing`, `generators`), and their properties (`statistics`).
"""
