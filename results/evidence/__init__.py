"""What was observed beside the numbers of a run, as dataclasses: suite writes, audits read them.

From outside: `evidence` and `target` (the parts), `values` (types of levels and of JSON), `stored`
(JSON in, dataclasses out, and back).
"""
