"""What was made is written down before, and undone with proof that it is ours.

From outside: `journal`, `tree` and `proof`.
Journals are hostile until checked.
"""
