-- Deletes the buckets ?1 to ?2.
DELETE FROM once_segment_data WHERE id BETWEEN ?1 AND ?2
