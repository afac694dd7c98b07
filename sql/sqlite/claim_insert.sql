-- A grant. Appends; fails on a fence that was given before (K2).
INSERT INTO once_claim (fence, record, prev, attempt, flags, takeover, created_at, claimed_at, lease_ms, boot,
                        retention_ms, body_retention_ms, fingerprint_version, fingerprint, nonce, tenant, key, sum)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)
