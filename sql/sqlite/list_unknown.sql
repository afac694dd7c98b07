-- Attempts before fence ?1 that ended as unknown, newest first, by the index once_unknown. Same columns as list.sql.
-- The caller stops after a bounded number of rows.
SELECT c.record, c.prev, c.attempt, c.flags, c.takeover, ifnull(c.created_at, c.claimed_at), c.claimed_at,
       c.lease_ms, c.boot, c.retention_ms, c.body_retention_ms, c.fingerprint_version, c.fingerprint, c.nonce, c.tenant,
       c.key, c.sum,
       p.lease_until, p.boot, p.point, p.points, NULL, p.sum,
       r.state, r.flags, r.status, r.finished_at, r.expires_at, r.body_until, NULL, c.fence
  FROM once_result r
 CROSS JOIN once_claim c ON c.fence = r.fence
  LEFT JOIN once_progress p ON p.fence = r.fence
 WHERE r.state = ONCE_STATE_UNKNOWN AND r.fence < ?1
 ORDER BY r.fence DESC
