-- Adds the claims after ?1 to the tail: a process with its index in RAM wrote them.
INSERT INTO once_tail (record, fence) SELECT record, fence FROM once_claim WHERE fence > ?1 ORDER BY fence
ON CONFLICT (record) DO UPDATE SET fence = excluded.fence
