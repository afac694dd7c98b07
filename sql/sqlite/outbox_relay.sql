-- Who relays, under which fence, until when.
SELECT relay, fence, lease_until FROM once_outbox_relay
