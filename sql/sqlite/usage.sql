-- Claims of the fences ?1 to ?2 with the bytes stored with them, oldest first; length() does not read a blob. Forgotten
-- records have no tenant any more: they must not count for the tenant with the empty name.
SELECT c.fence, c.record, c.tenant, r.state, r.expires_at,
       ifnull(length(r.outcome), 0) + ifnull(length(p.checkpoint), 0) + ifnull(length(q.request), 0)
  FROM once_claim c
  LEFT JOIN once_result r ON r.fence = c.fence
  LEFT JOIN once_progress p ON p.fence = c.fence
  LEFT JOIN once_request q ON q.fence = c.fence
 WHERE c.fence BETWEEN ?1 AND ?2 AND c.flags & SQLITE_FLAG_FORGOTTEN = 0
 ORDER BY c.fence
