-- Takes away two of the marks that are past their retention: consumer, taken at or before. Each new mark does so, hence they do not pile up.
DELETE FROM once_inbox WHERE (consumer, message_id) IN
    (SELECT consumer, message_id FROM once_inbox INDEXED BY once_inbox_age WHERE consumer = ?1 AND taken_at <= ?2 ORDER BY taken_at LIMIT 2)
