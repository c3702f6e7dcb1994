"""A double of the package darshan: what traces/importing/dxt.py asks of it, from a JSON file."""
