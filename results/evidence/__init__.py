"""What was observed beside the numbers of a run, as dataclasses: suite writes, audits read them.

From outside: `evidence` and `target` (the parts), `workloads`, `replay` and `trace` (what they
tell of a phase), `stored` (types of levels and of JSON; JSON in, dataclasses out, and back).
"""
