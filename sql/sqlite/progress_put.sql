-- Renewed lease, recovery point and checkpoint of a grant; NULLs where there is no point.
INSERT INTO once_progress (fence, lease_until, boot, point, points, checkpoint, sum)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (fence) DO UPDATE
   SET lease_until = excluded.lease_until, boot = excluded.boot, point = excluded.point,
       points = excluded.points, checkpoint = excluded.checkpoint, sum = excluded.sum
