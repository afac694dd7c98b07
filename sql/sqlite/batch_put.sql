-- Names the step that this transaction commits: ?1 slot, ?2 writer, ?3 number, ?4 the store's time.
INSERT INTO once_batch (slot, writer, number, at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (slot) DO UPDATE SET writer = excluded.writer, number = excluded.number, at = excluded.at
