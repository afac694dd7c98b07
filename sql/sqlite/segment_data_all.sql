-- Every bucket, oldest segment first: to build the index in RAM from.
SELECT id, entries FROM once_segment_data ORDER BY id
