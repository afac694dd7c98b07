-- Every bucket, oldest segment first: what the index in RAM is built from.
SELECT id, entries FROM once_segment_data ORDER BY id
