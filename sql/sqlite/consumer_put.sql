-- Sets how long a consumer's entries are kept: name, retention or NULL, redelivery window or NULL.
INSERT INTO once_consumer (name, retention_ms, redelivery_window_ms) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET retention_ms = excluded.retention_ms, redelivery_window_ms = excluded.redelivery_window_ms
