"""Files: paths as written, and by descriptors: extents, cached pages, and who may change one.

`written`, `extents`, `residency`, `descent` and `trusted` may be imported.
"""
