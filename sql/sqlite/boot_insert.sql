-- First seen in boot ?1 at wall time ?2 (never before what the store has seen) and steady time ?3.
INSERT INTO once_boot (boot_id, wall_ms, steady_ms)
VALUES (?1, max(?2, ifnull((SELECT max(wall_ms) FROM once_boot), ?2), ifnull((SELECT max(at) FROM once_batch), ?2)), ?3)
