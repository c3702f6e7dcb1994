"""What users and administrators write: YAML, the schema, settings in layers, problems.

From outside: `problems`, `settings`, `yamlio`, `campaign`, `site`.
"""
