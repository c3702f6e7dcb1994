"""CephFS attached to a client node: ceph-fuse, kernel mounts, their sessions and proofs.

From outside: `clients`, `sessions`, `attached`.
"""
