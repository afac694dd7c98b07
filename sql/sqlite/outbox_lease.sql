-- Takes the lease: relay, fence, until.
UPDATE once_outbox_relay SET relay = ?1, fence = ?2, lease_until = ?3
