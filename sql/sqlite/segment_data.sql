-- The entries of bucket ?1.
SELECT entries FROM once_segment_data WHERE id = ?1
