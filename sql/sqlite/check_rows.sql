-- Claims after fence ?1, oldest first, with progress and result, for a check. Same
-- columns as record_by_fence.
SELECT c.record, c.prev, c.attempt, c.flags, c.takeover, ifnull(c.created_at, c.claimed_at), c.claimed_at,
       c.lease_ms, c.boot, c.retention_ms, c.body_retention_ms, c.fingerprint_version, c.fingerprint, c.nonce, c.tenant,
       c.key, c.sum,
       p.lease_until, p.boot, p.point, p.points, p.checkpoint, p.sum,
       r.state, r.flags, r.status, r.finished_at, r.expires_at, r.body_until, r.outcome, c.fence
  FROM once_claim c
  LEFT JOIN once_progress p ON p.fence = c.fence
  LEFT JOIN once_result r ON r.fence = c.fence
 WHERE c.fence > ?1
 ORDER BY c.fence
 LIMIT ?2
