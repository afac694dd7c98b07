-- The value named ?1 (see once_meta).
SELECT value FROM once_meta WHERE name = ?1
