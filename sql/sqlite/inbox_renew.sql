-- A message whose mark is past its retention is taken in anew: consumer, message id, now, taken at or before.
UPDATE once_inbox SET taken_at = ?3 WHERE consumer = ?1 AND message_id = ?2 AND taken_at <= ?4
