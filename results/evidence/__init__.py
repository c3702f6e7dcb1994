"""What was seen of a run beside its numbers, as dataclasses: written by the suite, read by audits.

From outside: `evidence` (the parts), `stored` (JSON in, dataclasses out, and back).
"""
