-- A new segment: ?1 first fence, ?2 last fence, ?3 number of entries.
INSERT INTO once_segment (first, last, count, dead) VALUES (?1, ?2, ?3, 0)
