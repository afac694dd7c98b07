-- The newest fence of record ?2 among the claims after ?1, which are not in the index yet.
SELECT max(fence) FROM once_claim WHERE fence > ?1 AND record = ?2
