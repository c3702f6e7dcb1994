"""Traces that other tools have taken: fio's iologs, dbench's loadfiles, Darshan, blktrace.

From outside: `importer` (files in, a trace out; names of formats).
"""
