"""The clients that mount CephFS: started, recognised, ended; and their sessions at the MDSs.

From outside: `clients`, `sessions`.
"""
