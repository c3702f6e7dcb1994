"""Correlation of factors with metrics: heat maps of r, and r itself with its interval.

Import `correlation.correlation`; the claims of studies use `coefficient`.
"""
