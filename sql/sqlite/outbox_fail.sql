-- Records a failure: seq, id, due, refusals and delays to add, reason.
UPDATE once_outbox SET due = ?3, refusals = refusals + ?4, delays = delays + ?5, reason = ?6, suspect = 0
WHERE seq = ?1 AND id = ?2
