-- Records a message again whose entry is past its retention: consumer, message id, now, entered at or before.
UPDATE once_inbox SET taken_at = ?3 WHERE consumer = ?1 AND message_id = ?2 AND taken_at <= ?4
