-- The entries of one bucket of a segment.
INSERT INTO once_segment_data (id, entries) VALUES (?1, ?2)
ON CONFLICT (id) DO UPDATE SET entries = excluded.entries
