"""A bare block device as a target: who may overwrite it, who works on it, and its backend."""
