"""Analysis: a campaign file in (xarray), tables, figures and reports out."""
