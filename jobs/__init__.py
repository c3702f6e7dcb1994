"""Ready campaigns, one per study: data only."""
