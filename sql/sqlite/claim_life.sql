-- The record of claim ?1, and what tells the lives of its key apart: fingerprint and time of the first attempt.
SELECT record, fingerprint, ifnull(created_at, claimed_at) FROM once_claim WHERE fence = ?1
