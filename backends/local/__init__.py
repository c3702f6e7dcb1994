"""File systems of this machine: on images with loop devices, tmpfs, and directories that are there.

From outside: the backends by the registry; `mounts`, `directory` and `provenance` for other mounts.
"""
