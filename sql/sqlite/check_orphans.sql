-- Results, progress and requests without their claim: there must be none (K7).
SELECT 'result', fence FROM once_result WHERE fence NOT IN (SELECT fence FROM once_claim)
UNION ALL
SELECT 'progress', fence FROM once_progress WHERE fence NOT IN (SELECT fence FROM once_claim)
UNION ALL
SELECT 'request', fence FROM once_request WHERE fence NOT IN (SELECT fence FROM once_claim)
LIMIT 1000
