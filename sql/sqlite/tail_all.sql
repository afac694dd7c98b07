-- The tail, sorted as a segment is.
SELECT record, fence FROM once_tail ORDER BY record
