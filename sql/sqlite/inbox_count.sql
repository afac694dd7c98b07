-- How many dead letters a consumer has, up to 100000: consumer.
SELECT count(*) FROM (SELECT 1 FROM once_inbox_dead WHERE consumer = ?1 LIMIT 100000)
