"""How many blocks decide a difference: power of a plan, and what would decide a campaign that ran.

From outside: `extension`, and `power` by `fsmatrix plan`.
"""
