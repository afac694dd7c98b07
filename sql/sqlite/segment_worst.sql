-- A segment with only dead entries, or with three quarters dead, if there is one. Of the latter not ?1, where expiry
-- deletes claims now.
SELECT first, last, count FROM once_segment
 WHERE dead >= count OR (dead * 4 >= count * 3 AND first <> ?1)
 LIMIT 1
