"""What a campaign says to somebody who must choose: who stands where, and what follows from it.

It estimates and tests nothing itself.  From outside: `lessons`, `standings`,
`first_screen`.
"""
