"""Several devices of one host adapter as one target, of which a level takes so many.

From outside: the backend by the registry, its kind of journal entry, and `cgroups`.
"""
