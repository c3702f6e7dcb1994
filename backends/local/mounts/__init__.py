"""Mounts of the suite: points, the clients that serve them, their life; and what lies below any.

From outside: `mounting`, `fuse`, `client_mount`, `caution`.
"""
