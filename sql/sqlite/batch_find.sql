-- Whether step ?3 of writer ?2, in slot ?1, committed.
SELECT 1 FROM once_batch WHERE slot = ?1 AND writer = ?2 AND number = ?3
