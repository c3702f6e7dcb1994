"""What the backends need from Linux: programs, mounts, block devices, page cache, quotas."""
