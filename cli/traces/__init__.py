"""Commands of traces: capture, import, generate, look at, anonymise; a file for each.

Imported by `cli.app` alone.
"""
