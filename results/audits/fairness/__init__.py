"""Are targets compared fairly?  Facts of their deployments side by side: equal, unequal, unknown.

From outside: `fairness` (the question and its answer), `rules` (what each fact means for speed).
"""
