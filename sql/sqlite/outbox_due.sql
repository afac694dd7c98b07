-- Makes a message due for an operator: id.
UPDATE once_outbox SET due = 0 WHERE id = ?1 AND scheduled = 0 AND refusals + delays + crashes + suspect > 0
