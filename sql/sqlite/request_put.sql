-- The request of the grant ?1, with its checksum.
INSERT INTO once_request (fence, request, sum) VALUES (?1, ?2, ?3)
