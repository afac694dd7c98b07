-- Claims of the fences ?1 to ?2 with what is stored with them, oldest first; blobs are not read for their length.
-- What was forgotten (SQLITE_FLAG_FORGOTTEN) has no tenant any more, and is not the one's who has no name.
SELECT c.fence, c.record, c.tenant, r.state, r.expires_at,
       ifnull(length(r.outcome), 0) + ifnull(length(p.checkpoint), 0) + ifnull(length(q.request), 0)
  FROM once_claim c
  LEFT JOIN once_result r ON r.fence = c.fence
  LEFT JOIN once_progress p ON p.fence = c.fence
  LEFT JOIN once_request q ON q.fence = c.fence
 WHERE c.fence BETWEEN ?1 AND ?2 AND c.flags & SQLITE_FLAG_FORGOTTEN = 0
 ORDER BY c.fence
