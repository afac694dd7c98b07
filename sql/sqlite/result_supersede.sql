-- The record has a later attempt: result ?1 no longer expires by itself.
UPDATE once_result SET expires_at = NULL WHERE fence = ?1
