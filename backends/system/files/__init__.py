"""Files by descriptors: extents, cached pages, all below a folder, and who may change one.

`extents`, `residency`, `descent` and `trusted` may be imported.
"""
