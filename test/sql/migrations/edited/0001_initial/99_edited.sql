-- The first migration, edited after it was released, for tests only.
CREATE TABLE once.edited (x integer);
