"""What was made is written down before, and undone with proof that it is ours.

From outside: `journal`, `made`, `tree`, `identity`, `undo`.  Journals are hostile until checked.
"""
