"""Traces that other tools have taken: fio's iologs, dbench's loadfiles, Darshan, blktrace.

From outside: `importing` (files in, a trace out) and `registry` (names of formats).
"""
