"""Commands that show and hand on results: show, findings, report, bundle, import.

Imported by `cli.app` alone.
"""
