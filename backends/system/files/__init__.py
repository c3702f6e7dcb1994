"""What is known of a file: where its extents lie, which pages are cached, who may change it.

`extents`, `residency` and `trusted` may be imported.
"""
