"""Ceph's own libraries by ctypes: librados, libcephfs, how to log in, and their errors.

From outside: `login`, `librados`, `errors`; nothing here decides anything.
"""
