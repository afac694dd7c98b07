-- Set a fact about this store.
INSERT INTO once_meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value
