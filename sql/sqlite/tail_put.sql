-- The newest fence of record ?1 is ?2.
INSERT INTO once_tail (record, fence) VALUES (?1, ?2) ON CONFLICT (record) DO UPDATE SET fence = excluded.fence
