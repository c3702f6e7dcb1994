"""Who is faster, cell by cell, by how much, and is it beyond noise."""
