-- All of it is in a segment now.
DELETE FROM once_tail
