"""A real DAOS on one machine, where its server is installed; `testbed` says how to use it."""
