-- Sets the value named ?1 (see once_meta).
INSERT INTO once_meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value
