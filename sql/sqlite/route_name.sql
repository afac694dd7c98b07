-- The name of route ?1. One row at most.
SELECT name FROM once_route WHERE id = ?1
