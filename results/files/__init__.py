"""Run files, campaign files and the store: written whole or not at all, checked when read.

From outside: `store`, `lock`, `safefile` (files of others, whole files, trust), `runfile`,
`campaignfile`, `campaignread`, `run_rows`, `schema`, `hdf` and `hdf_check` (HDF5 as both
files use it).
"""
