"""Files: paths as written, and by descriptors: extents, cached pages, and who may change one.

`residency`, `trusted` and `trusted` may be imported.
"""
