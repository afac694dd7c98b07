-- The number of the route named ?1. One row at most.
SELECT id FROM once_route WHERE name = ?1
