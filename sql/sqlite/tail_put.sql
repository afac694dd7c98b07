-- Record ?1 is now at fence ?2.
INSERT INTO once_tail (record, fence) VALUES (?1, ?2) ON CONFLICT (record) DO UPDATE SET fence = excluded.fence
