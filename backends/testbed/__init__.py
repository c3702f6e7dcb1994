"""Real storage systems started on one machine, for tests and for emulated cluster factors.

`ceph_testbed` and `daos_testbed` say how each is used; beside them is what every test bed needs.
"""
