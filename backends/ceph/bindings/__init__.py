"""Ceph's own libraries by ctypes: librados, libcephfs, how to log in, and their errors.

From outside: `librados`, `cephfs`, `capi`; nothing here decides anything.
"""
