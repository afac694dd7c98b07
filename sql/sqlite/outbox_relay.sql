-- The relay that holds the lease, its fence, until when.
SELECT relay, fence, lease_until FROM once_outbox_relay
