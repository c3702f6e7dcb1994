"""Campaign files as data: opened, their factors, rows of runs, medians of every cell.

From outside: `load`, `study`, `summary`, `matrices`, `factors`, `columns`, `doubts`.  It imports
`stats` and `results`, and nothing that draws or prints.
"""
