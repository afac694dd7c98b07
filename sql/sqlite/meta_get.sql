-- A fact about this store.
SELECT value FROM once_meta WHERE name = ?1
