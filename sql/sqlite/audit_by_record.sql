-- The audit trail of a record, oldest first.
SELECT at, fence, what, actor, reason FROM once_audit WHERE record = ?1 ORDER BY id LIMIT ?2
