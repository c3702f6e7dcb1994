"""Files: paths as written, and by descriptors: what of them is there, and who may change one.

`written`, `residency`, `descent` and `trusted` may be imported.
"""
