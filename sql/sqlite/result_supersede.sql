-- A later attempt stands for the record now: the old result no longer expires by itself.
UPDATE once_result SET expires_at = NULL WHERE fence = ?1
