"""Which target is faster, cell by cell, by how much, and whether that is more than noise.

From outside: `compare`, `comparison_result`, `counted_rows`.
"""
