"""A campaign as jobs: divided, submitted, looked at, cancelled.

From outside: `submitting`, `submission`, `status`.
"""
