"""Campaign files as data: opened, their factors, rows of runs, medians of every cell.

From outside: `load`, `metric_cells`, `summary`, `matrices`, `factors`, `columns`, `doubts`.  It
imports `stats` and `results`, and nothing that draws or prints.
"""
