"""The same tables and transactions on SQLite: no server, a process and a connection per user."""
