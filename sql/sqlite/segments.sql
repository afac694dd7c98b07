-- All segments, newest first.
SELECT first, last, count, dead FROM once_segment ORDER BY first DESC
