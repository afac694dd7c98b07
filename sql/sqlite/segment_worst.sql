-- A segment whose entries are mostly dead, if there is one.
SELECT first, count FROM once_segment WHERE dead * 4 >= count * 3 LIMIT 1
