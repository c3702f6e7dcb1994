"""Commands that ask a campaign's results a question: compare, lessons, claims, and the catalogue's.

Imported by `cli.app`; `analyse` holds what commands of results share.
"""
