"""Commands of campaigns: check, jobs, plan, run, submit, status, cancel, collect.

Imported by `cli.app` alone.
"""
