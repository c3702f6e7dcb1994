"""Parsers of other programs' outputs: text in, one `Parsed` for each run in it, or a `ParseError`.

From outside: `parsed`, and each format's package; used by workloads and by import.
"""
