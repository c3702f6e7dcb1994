"""A session as the conductor sees it: started, asked, ended by pid whatever happens.

From outside: `client`, `orphaned_sessions`, `loopback`.
"""
