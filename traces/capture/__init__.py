"""Captures: a program runs under strace, and what strace writes becomes a trace.

From outside: `strace` (runs a command; reads texts, of other people too).
"""
