-- Whose claim ?1 is, and the attempt before it.
SELECT record, prev FROM once_claim WHERE fence = ?1
