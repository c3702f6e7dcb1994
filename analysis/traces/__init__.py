"""The properties of a trace in sentences, tables and a picture.

From outside: `shown.TraceShown`.
"""
