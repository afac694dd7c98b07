-- The record of claim ?1, and the fence of the attempt before it.
SELECT record, prev FROM once_claim WHERE fence = ?1
