-- Unfinished attempts of the fences ?1 to ?2: without a result, or failed and retryable, oldest first. Same
-- columns as list.sql.
SELECT c.record, c.prev, c.attempt, c.flags, c.takeover, ifnull(c.created_at, c.claimed_at), c.claimed_at,
       c.lease_ms, c.boot, c.retention_ms, c.body_retention_ms, c.fingerprint_version, c.fingerprint, c.nonce, c.tenant,
       c.key, c.sum,
       p.lease_until, p.boot, p.point, p.points, NULL, p.sum,
       r.state, r.flags, r.status, r.finished_at, r.expires_at, r.body_until, NULL, c.fence
  FROM once_claim c
  LEFT JOIN once_result r ON r.fence = c.fence
  LEFT JOIN once_progress p ON p.fence = c.fence
 WHERE c.fence BETWEEN ?1 AND ?2 AND (r.fence IS NULL OR (r.state = ONCE_STATE_FAILED AND r.flags & SQLITE_RESULT_RETRYABLE <> 0))
 ORDER BY c.fence
