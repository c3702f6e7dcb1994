"""Mounts of the suite: points, the clients that serve them, their life.

From outside: `mounting`, `client_mount`.
"""
