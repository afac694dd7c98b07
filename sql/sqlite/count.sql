-- An estimate of the number of attempts: segments count their entries (one for all attempts of a record in that
-- segment);
-- claims after fence ?1, which are in no segment, are counted.
SELECT (SELECT ifnull(sum(max(count - dead, 0)), 0) FROM once_segment) +
       (SELECT count(*) FROM once_claim WHERE fence > ?1)
