"""Commands that bring a real storage or batch system up on this machine, and down again.

Imported by `cli.app` alone.
"""
