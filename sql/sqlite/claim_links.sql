-- The records of the claims ?1 to ?2, and the fences of the attempts before them.
SELECT fence, record, prev FROM once_claim WHERE fence BETWEEN ?1 AND ?2 ORDER BY fence
