"""Where a campaign's data lies on a cluster: namespaces of pools, trees of CephFS.

From outside: `trees`, `spaces`.
"""
