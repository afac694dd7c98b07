-- An outcome. Fails if the attempt has one (K5).
INSERT INTO once_result (fence, state, flags, status, finished_at, expires_at, body_until, outcome)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
