-- A route named ?1, with the next number; none where there are ONCE_ROUTE_COUNT_MAX already. The caller has looked: it is new.
INSERT INTO once_route (id, name)
SELECT count(*) + 1, ?1 FROM once_route HAVING count(*) < ONCE_ROUTE_COUNT_MAX
RETURNING id
