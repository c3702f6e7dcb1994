"""Cgroups, version 1 and 2: limits of memory and of drives.

`memory` and `throttle` may be imported; `hierarchy` is what both stand on.
"""
