"""Storage nodes watched during runs: sources, and what their counters say."""
