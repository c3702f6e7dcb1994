"""What an upgrade changed: a baseline against new campaigns, and a history over many.

From outside: `acceptance`, `history`.
"""
