"""Statistics of comparisons: pure functions on numpy arrays.

The unit of independence is the attachment: runs are reduced to one value per attachment, or to
one ratio per block, before anything else is computed.  Ratios are on the log scale.
"""
