-- At most ?2 results whose headers and body were to be dropped at ?1, the longest due first, with what their checksum
-- covers.
-- Uses once_body_due.
SELECT r.fence, c.record, r.state, r.flags, r.status, r.outcome
  FROM once_result r
  JOIN once_claim c ON c.fence = r.fence
 WHERE r.body_until <= ?1
 ORDER BY r.body_until
 LIMIT ?2
