"""Results for others: an archive that can be looked at and run again, without names.

From outside: `bundle`, `anonymise`.
"""
