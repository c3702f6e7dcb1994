"""Outputs that somebody has already, recognised, labelled, and made records as if run here.

From outside: `importing`, `recognise`.
"""
