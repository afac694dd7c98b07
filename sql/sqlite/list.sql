-- Claims before fence ?1, newest first, with progress and result, for a listing. The caller stops after a bounded
-- number of rows. Same columns as record_by_fence,
-- but without the outcome's bytes.
SELECT c.record, c.prev, c.attempt, c.flags, c.takeover, ifnull(c.created_at, c.claimed_at), c.claimed_at,
       c.lease_ms, c.boot, c.retention_ms, c.body_retention_ms, c.fingerprint_version, c.fingerprint, c.nonce, c.tenant,
       c.key, c.sum,
       p.lease_until, p.boot, p.point, p.points, NULL, p.sum,
       r.state, r.flags, r.status, r.finished_at, r.expires_at, r.body_until, NULL, c.fence
  FROM once_claim c
  LEFT JOIN once_progress p ON p.fence = c.fence
  LEFT JOIN once_result r ON r.fence = c.fence
 WHERE c.fence < ?1
 ORDER BY c.fence DESC
