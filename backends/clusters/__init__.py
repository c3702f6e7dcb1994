"""What backends of storage clusters do alike: levels in pools of their own, mounts with clients.

From outside: `levels`, `client_mounts`.
"""
