-- How long a consumer's entries are kept: name.
SELECT retention_ms FROM once_consumer WHERE name = ?1
