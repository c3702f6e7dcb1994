"""Op streams of the built-in workloads: generators that every rank runs.

From outside: by name, in a step.  Imports numpy and the standard library only.
"""
