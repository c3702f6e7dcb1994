"""Analyses of one question each: a function of the Dataset that returns a `Result`.

From outside: the function of the module's own name, by way of `analysis.catalogue` or a command;
`curves` also as a building block of studies.
"""
