-- A route named ?1, with the next number; none where there are 62 already. The caller has looked: it is new.
INSERT INTO once_route (id, name)
SELECT count(*) + 1, ?1 FROM once_route HAVING count(*) < 62
RETURNING id
