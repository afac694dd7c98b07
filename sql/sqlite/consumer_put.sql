-- How long a consumer's marks are kept: name, retention or NULL, horizon or NULL.
INSERT INTO once_consumer (name, retention_ms, redelivery_window_ms) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET retention_ms = excluded.retention_ms, redelivery_window_ms = excluded.redelivery_window_ms
