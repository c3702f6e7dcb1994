"""What the backends need from Linux: programs, mounts, block devices, packages, rights.

From outside: all of it; it imports nothing of the backends but their errors.
"""
