"""Traces: the file operations of a program, written down to be looked at and played again.

From outside: `model`, `files`, `writer`, `reader`, `anonymise`, and the folders: where traces come
from (`capture`, `importing`, `generators`), and what they are like (`statistics`).
"""
