-- Of the claim ?1: without its names; its flags are ?2 and its checksum is ?3.
UPDATE once_claim SET tenant = x'', key = NULL, flags = ?2, sum = ?3 WHERE fence = ?1
