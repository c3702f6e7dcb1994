"""DAOS's own library libdfs by ctypes, in processes that may be ended: folders of runs.

From outside: `folders`.
"""
