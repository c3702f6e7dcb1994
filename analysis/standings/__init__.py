"""Where each target stands in each cell, and what that says to somebody who must choose.

From outside: `standings`, `standing`, `sentences`, `places`.
"""
