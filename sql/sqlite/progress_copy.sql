-- The next attempt (?2) starts where the one before (?1) got to; its lease is its own.
INSERT INTO once_progress (fence, lease_until, boot, point, points, checkpoint)
SELECT ?2, ?3, ?4, point, points, checkpoint FROM once_progress WHERE fence = ?1 AND point IS NOT NULL
