"""Real storage systems started on one machine, for tests and for emulated cluster factors.

`ceph`: a Ceph of distribution packages; see `fsmatrix.backends.testbed.ceph` for how to use it.
"""
