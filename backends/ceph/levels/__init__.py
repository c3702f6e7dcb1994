"""Factors of a cluster: how many storage nodes and which redundancy a run meets, by CRUSH rules.

From outside: `levels`, `levelstate`, `leveloptions`.
"""
