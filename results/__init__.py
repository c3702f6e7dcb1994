"""The record of a run, and what writes, reads, judges and shares it.

From outside: `record`, `units`, `histogram`, `registry`, `process`; `files` to store,
`formats` to parse, `audits` to judge, `sharing` to hand on.
"""
