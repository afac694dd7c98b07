-- The first claim after fence ?1, and the last of all.
SELECT (SELECT min(fence) FROM once_claim WHERE fence > ?1), (SELECT max(fence) FROM once_claim)
