"""Factors of a DAOS system: how many storage nodes and which object class a run meets.

From outside: `leveloptions`, `classes`, `levels`.
"""
