-- The readings of both clocks when boot ?1 was first seen: the anchor of the store's clock.
SELECT seq, wall_ms, steady_ms, sum FROM once_boot WHERE boot_id = ?1
