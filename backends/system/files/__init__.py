"""Files by descriptors: where extents lie, which pages are cached, and all below a folder.

`extents`, `residency` and `descent` may be imported.
"""
