"""What single studies ask of their data: CERN's report, OLTP on flash, page-cache replay, IO500.

From outside: `flash`, `pagecache`, `claims`, `io500`.
"""
