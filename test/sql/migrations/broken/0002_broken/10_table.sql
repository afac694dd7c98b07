-- A second migration that fails after it has done something, for tests only.
CREATE TABLE once.next_one (x integer PRIMARY KEY);
UPDATE once.ring SET period_ms = 1;
SELECT 1 / 0;
