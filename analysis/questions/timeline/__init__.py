"""One run from its begin to its end: latencies, throughput, client CPU, what storage said.

From outside: `timeline`.
"""
