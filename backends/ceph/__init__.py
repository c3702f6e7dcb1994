"""Ceph by four doors: RADOS, libcephfs, and CephFS mounted by FUSE or by the kernel.

From outside: the backends by the registry; `bindings`, `facts`, `levels` and `mounts` for the test
bed and undoing.
"""
