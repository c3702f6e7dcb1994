"""How figures, tables and pages are made: the frame of a figure, panels, bar charts, templates.

From outside: `drawing`, `panels`, `pictures`, `charts`, `tables`, `page`.  It knows
summaries and intervals, and no single analysis.
"""
