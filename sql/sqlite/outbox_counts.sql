-- Pending, held, later, dead, the oldest: now.
SELECT count(*) FILTER (WHERE later = 0 AND due <= ?1), count(*) FILTER (WHERE later = 0 AND due > ?1), count(*) FILTER (WHERE later = 1),
       (SELECT count(*) FROM once_outbox_dead), min(created_at) FILTER (WHERE later = 0 AND due <= ?1) FROM once_outbox
