"""The tools of DAOS and its agent: called with a deadline, their JSON understood or refused.

From outside: `tool`, `dmg`, `agent`, `client`, `answers`.
"""
