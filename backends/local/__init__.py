"""File systems of this machine: on images with loop devices, tmpfs, and directories that are there.

From outside: the backends by the registry; `own_mounts`, `directory` and `provenance` for others.
"""
