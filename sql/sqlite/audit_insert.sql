-- A row of the audit trail. Never deleted.
INSERT INTO once_audit (at, record, fence, what, actor, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
