-- Writes the entries of bucket ?1.
INSERT INTO once_segment_data (id, entries) VALUES (?1, ?2)
ON CONFLICT (id) DO UPDATE SET entries = excluded.entries
