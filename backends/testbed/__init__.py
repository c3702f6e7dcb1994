"""Real storage systems started on one machine, for tests and for emulated cluster factors.

A folder for each system, and beside them what every test bed needs.
"""
