"""Who is faster, cell by cell, by how much, and is it beyond noise.

From outside: `compare`, `result`, `rows`, `advice`, `words`.
"""
