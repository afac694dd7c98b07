-- The tail in the order of a segment.
SELECT record, fence FROM once_tail ORDER BY record
