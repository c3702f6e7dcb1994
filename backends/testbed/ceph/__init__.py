"""A real Ceph on one machine; `testbed` says how to use it."""
