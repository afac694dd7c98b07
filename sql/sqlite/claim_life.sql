-- Whose claim ?1 is, and of which life of its key: its fingerprint, and when that life began.
SELECT record, fingerprint, ifnull(created_at, claimed_at) FROM once_claim WHERE fence = ?1
