-- Claims of the fences ?1 to ?2 with what is stored with them, oldest first; blobs are not read for their length.
SELECT c.fence, c.record, c.tenant, r.state, r.expires_at,
       ifnull(length(r.outcome), 0) + ifnull(length(p.checkpoint), 0) + ifnull(length(q.request), 0)
  FROM once_claim c
  LEFT JOIN once_result r ON r.fence = c.fence
  LEFT JOIN once_progress p ON p.fence = c.fence
  LEFT JOIN once_request q ON q.fence = c.fence
 WHERE c.fence BETWEEN ?1 AND ?2
 ORDER BY c.fence
