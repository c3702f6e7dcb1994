"""Names of hosts, users, paths, addresses and jobs replaced by pseudonyms, in fields and in texts.

From outside: `anonymise`.
"""
