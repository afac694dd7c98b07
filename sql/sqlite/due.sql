-- At most ?2 results whose retention was over at ?1, the longest due first. Uses once_due.
SELECT fence FROM once_result WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2
