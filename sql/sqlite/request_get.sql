-- The request that is kept with the grant ?1.
SELECT request, sum FROM once_request WHERE fence = ?1
