-- A second migration, for tests only.
CREATE TABLE once.next_one (x integer PRIMARY KEY);
INSERT INTO once.next_one VALUES (1);
