"""Everything that is known about a campaign before it runs: matrix, order, estimate, refusals.

From outside: `plan`, `request`, `order`, `estimate`, `limits`.  Pure, but for what backends
answer.
"""
