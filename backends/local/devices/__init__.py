"""Block devices as targets: several of one host adapter side by side, or a bare one.

From outside: the backend by the registry, and its kind of journal entry.
"""
