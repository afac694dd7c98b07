-- The number for the next boot, and the latest time the store has seen (never before ?1).
SELECT (SELECT count(*) + 1 FROM once_boot),
       max(?1, ifnull((SELECT max(wall_ms) FROM once_boot), ?1), ifnull((SELECT max(at) FROM once_batch), ?1),
           ifnull((SELECT claimed_at FROM once_claim ORDER BY fence DESC LIMIT 1), ?1))
