-- Whose claims the fences ?1 to ?2 are, and the attempts before them.
SELECT fence, record, prev FROM once_claim WHERE fence BETWEEN ?1 AND ?2 ORDER BY fence
