"""The tools of DAOS and its agent: called with a deadline, their JSON understood or refused.

From outside: `tool` (`daos`), `dmg`, `agent`, `client`, `answers`.
"""
