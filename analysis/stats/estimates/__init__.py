"""Estimates with intervals: medians, ratios, tails, and how one cell varies.

From outside: all of it.  Pure functions of arrays: independent values in, an interval out.
"""
