"""Mounts of the suite: their points, the clients that serve them, and the life of such a mount.

From outside: `mounting`, `fuse`, `client_mount`.
"""
