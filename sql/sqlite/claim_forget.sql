-- Erases tenant and key of claim ?1; its new flags are ?2, its new checksum ?3.
UPDATE once_claim SET tenant = x'', key = NULL, flags = ?2, sum = ?3 WHERE fence = ?1
