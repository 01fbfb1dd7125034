"""The ledger: the history of queries in a database, SQLite or PostgreSQL, for people and fleets to ask."""
