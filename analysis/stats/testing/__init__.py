"""Tests of differences and of effects, corrected for many cells and several looks; verdicts.

From outside: all of it.  Pure functions of arrays; they use `estimates`, never the other way.
"""
