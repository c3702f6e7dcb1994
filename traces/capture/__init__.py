"""Captures: a program runs under strace, and what strace writes becomes a trace.

From outside: `program` (runs a command), `strace` (reads texts, of other people too).
"""
