"""Block devices as targets: several of one host adapter side by side, or a bare one (`bare/`).

From outside: the backend by the registry, its kind of journal entry, and `cgroups`.
"""
