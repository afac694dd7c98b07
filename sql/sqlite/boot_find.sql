-- The anchor of the store's clock in boot ?1.
SELECT seq, wall_ms, steady_ms, sum FROM once_boot WHERE boot_id = ?1
