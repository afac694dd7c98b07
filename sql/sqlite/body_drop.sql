-- Result ?1 keeps that it was done and how, but not its headers and body: ?2 is an outcome that says so. NULL: it is
-- damaged, and stays for a check to find.
UPDATE once_result SET outcome = ifnull(?2, outcome), body_until = NULL WHERE fence = ?1
