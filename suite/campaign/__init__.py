"""What users and administrators write: YAML, the schema, settings in layers, problems.

From outside: `yamlio`, `settings`, `campaign`, `site`.
"""
