-- Is the claim ?1 still there?
SELECT 1 FROM once_claim WHERE fence = ?1
