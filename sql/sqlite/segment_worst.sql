-- A segment whose entries are all dead, or mostly, if there is one; but not the mostly dead
-- one ?1 that expiry is just working through.
SELECT first, last, count FROM once_segment
 WHERE dead >= count OR (dead * 4 >= count * 3 AND first <> ?1)
 LIMIT 1
