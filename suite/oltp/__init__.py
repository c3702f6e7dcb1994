"""What a client node does for the workload `tpcc`: a PostgreSQL server, its rows, its clients."""
