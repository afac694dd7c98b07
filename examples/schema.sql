-- The shop's own tables, for the examples in Python, Node, Go and Java. `once migrate` adds Once's beside them.
CREATE TABLE orders (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    item     text NOT NULL,
    amount   bigint NOT NULL,           -- cents
    status   text NOT NULL,             -- new, paid, declined
    charge   text,                      -- the payment provider's name for it
    once_key text UNIQUE                -- only behind the gateway: which request this is the order of
);
CREATE TABLE stock (item text PRIMARY KEY, count bigint NOT NULL);
