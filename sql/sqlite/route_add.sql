-- Adds a route named ?1, which is new, with the next number; no row if there are ONCE_ROUTE_COUNT_MAX already.
INSERT INTO once_route (id, name)
SELECT count(*) + 1, ?1 FROM once_route HAVING count(*) < ONCE_ROUTE_COUNT_MAX
RETURNING id
