-- A relay crashed: its messages in flight are suspects; a crash with only one counts against that one. Parameter: now.
UPDATE once_outbox SET
    crashes = crashes + (suspect = 1 AND (SELECT count(*) FROM once_outbox WHERE flight IS NOT NULL) = 1),
    reason = 'a relay went away while this was under way', suspect = 1, due = ?1, flight = NULL
WHERE flight IS NOT NULL
