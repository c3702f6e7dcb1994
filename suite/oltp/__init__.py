"""What a client node does for the workload `tpcc`: a database, its rows, its users."""
