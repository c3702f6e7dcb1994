"""What the kernel knows of a file: where its extents lie, which of its pages are cached.

`extents` and `residency` may be imported.
"""
