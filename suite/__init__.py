"""From a campaign's text to runs: what is written, cases, plan, sessions, records.

From outside: `campaign`, `plan`, `run`, `importing`; `registry` for workloads, engines and
launchers.
"""
