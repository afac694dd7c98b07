-- Fences and record ids after ?1, oldest first, to build the index from.
SELECT fence, record FROM once_claim WHERE fence > ?1 ORDER BY fence
