"""What tools that watch a node write: nmon, sar, collectl.  Text in, series of one node out."""
