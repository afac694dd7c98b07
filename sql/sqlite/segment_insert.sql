-- A sealed segment without its entries: ?1 first, ?2 last, ?3 count.
INSERT INTO once_segment (first, last, count, dead) VALUES (?1, ?2, ?3, 0)
