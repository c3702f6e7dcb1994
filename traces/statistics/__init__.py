"""The properties of a trace: one pass over its blocks, in memory that does not grow with them.

From outside: `survey`, which gives a results.evidence.trace.TraceStatistics.
"""
