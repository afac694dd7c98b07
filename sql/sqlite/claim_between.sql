-- Whether any claim with a fence from ?1 to ?2 is left.
SELECT 1 FROM once_claim WHERE fence BETWEEN ?1 AND ?2 LIMIT 1
