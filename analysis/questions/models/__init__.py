"""Models of a metric over chunk size: fitted, validated, and used to predict.

From outside: `models`, `models_result`.
"""
