-- A renewed lease; what else is known of the progress stays.
INSERT INTO once_progress (fence, lease_until, boot) VALUES (?1, ?2, ?3)
ON CONFLICT (fence) DO UPDATE SET lease_until = excluded.lease_until, boot = excluded.boot
