-- Deletes two entries past their retention: consumer, entered at or before. Each new entry does so, which bounds the table.
DELETE FROM once_inbox WHERE (consumer, message_id) IN
    (SELECT consumer, message_id FROM once_inbox INDEXED BY once_inbox_age WHERE consumer = ?1 AND taken_at <= ?2 ORDER BY taken_at LIMIT 2)
