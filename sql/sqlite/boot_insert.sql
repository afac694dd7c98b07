-- Boot ?2, the ?1-th, was first seen at store time ?3 and steady time ?4.
INSERT INTO once_boot (seq, boot_id, wall_ms, steady_ms, sum) VALUES (?1, ?2, ?3, ?4, ?5)
