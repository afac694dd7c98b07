-- The outcome of the attempt ?1 becomes ?2, without what was answered.
UPDATE once_result SET outcome = ?2 WHERE fence = ?1
