-- A relay went away: what it had under way is suspect, what it had alone is counted. Parameter: now.
UPDATE once_outbox SET
    crashes = crashes + (suspect = 1 AND (SELECT count(*) FROM once_outbox WHERE flight IS NOT NULL) = 1),
    reason = 'a relay went away while this was under way', suspect = 1, due = ?1, flight = NULL
WHERE flight IS NOT NULL
