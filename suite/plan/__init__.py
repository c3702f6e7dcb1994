"""Everything that is known about a campaign before it runs: matrix, order, estimate, refusals.

From outside: `plan`, `order`, `estimate`.  Pure, but for what backends
answer.
"""
