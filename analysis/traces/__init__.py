"""What a trace is like, in sentences, tables and a picture.

From outside: `shown.TraceShown`.
"""
