-- Messages that wait only because their sink was not reached are due.
UPDATE once_outbox SET due = 0 WHERE delays > 0 AND refusals = 0 AND scheduled = 0 AND due > 0
