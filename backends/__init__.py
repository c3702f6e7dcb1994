"""File systems and object stores: how they are made, reached, looked at and removed.

From outside: `contract` (the seam and its registry), `access`, `errors`; drivers of the player by
`player`. Each kind of storage is a folder: `local`, `ceph`, `daos`.
"""
