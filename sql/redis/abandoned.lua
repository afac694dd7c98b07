-- abandoned.lua - one bounded step over the unfinished records, oldest first.
--
-- KEYS  1 PREFIX:open   (and the records that it names: the whole store is in one Redis, never in a cluster)
-- ARGV  1 the time in ms (0: Redis's own)   2 a fence: only those after it   3 how many to look at   4 PREFIX:r:
--       5 "1": only remove the ids of records that Redis has expired
--
-- Ids whose record does not exist any more are removed from the set: Redis expires retryable failures by itself.
-- Answer: { now, last fence looked at, or 0 at the end, then of each its ID, m, t, k, p and "1" if there
-- is a request }; or { now, last fence, how many were removed }

local now = tonumber(ARGV[1])
if now == 0 then
    local t = redis.call('TIME')
    now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local limit = tonumber(ARGV[3])
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
local out, tidies, gone = { now, 0 }, ARGV[5] == '1', 0
for i = 1, #ids, 2 do
    local key = ARGV[4] .. ids[i]
    local v = tidies and { redis.call('EXISTS', key) == 1 } or redis.call('HMGET', key, 'm', 't', 'k', 'p')
    if v[1] and not tidies then
        out[#out + 1] = ids[i]
        for n = 1, 4 do out[#out + 1] = v[n] or '' end
        out[#out + 1] = tostring(redis.call('HEXISTS', key, 'q'))
    elseif not v[1] then
        redis.call('ZREM', KEYS[1], ids[i])
        gone = gone + 1
    end
end
if tidies then out[3] = gone end
if #ids == 2 * limit then out[2] = tonumber(ids[#ids]) end
return out
