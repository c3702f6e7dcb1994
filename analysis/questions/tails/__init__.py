"""Percentiles of latency from histograms, and how factors change them."""
