-- How many attempts are stored, about: those that segments cover as they tell it (of several of one record in one
-- segment, the newest), the others, after fence ?1, one by one.
SELECT (SELECT ifnull(sum(max(count - dead, 0)), 0) FROM once_segment) +
       (SELECT count(*) FROM once_claim WHERE fence > ?1)
