-- open.lua - a handle connects, for the first time or again: opens or makes the store, counts the handle's lost writes.
--
-- KEYS  1 PREFIX:meta  2 PREFIX:fence  3 PREFIX:witness
-- ARGV  1 name of the handle   2 its acknowledged writes   3 the largest fence that it knows
--       4 secret, and 5 generation, for a new store   6 "1": a new store may be made
--
-- Makes the store if there is none. Counts the handle's lost writes: acknowledged ones that the store does not know.
-- Raises
-- the fence over all that may have been given (K2): over the largest one that the handle knows, and over the time in
-- microseconds, which grows faster than any store's fences. So a server that lost data does not give a fence again.
--
-- Answer: { version or false, secret, generation, lost writes of the handle, lost writes in all, fence, made }

local meta, fence_key, witness = KEYS[1], KEYS[2], KEYS[3]
local handle, told, floor = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local HANDLES_MAX = 4096 -- handles that did not close

local made = 0
if redis.call('EXISTS', meta) == 0 then
    if ARGV[6] ~= '1' then return { false } end
    redis.call('HSET', meta, 'version', '1', 'secret', ARGV[4], 'generation', ARGV[5], 'lost', '0')
    made = 1
end

local kept = tonumber(redis.call('HGET', witness, handle) or '0')
local lost = math.max(told - kept, 0)
if lost > 0 then
    redis.call('HINCRBY', meta, 'lost', lost)
end
if kept < told or redis.call('HEXISTS', witness, handle) == 0 then
    redis.call('HSET', witness, handle, math.max(told, kept))
end
if redis.call('HLEN', witness) > HANDLES_MAX then
    local names = redis.call('HKEYS', witness)
    table.sort(names) -- they begin with the time of their opening
    for i = 1, #names - HANDLES_MAX do redis.call('HDEL', witness, names[i]) end
end

local t = redis.call('TIME')
local fence = tonumber(redis.call('GET', fence_key) or '0')
fence = math.max(fence, floor, t[1] * 1000000 + t[2])
redis.call('SET', fence_key, fence)

local m = redis.call('HMGET', meta, 'version', 'secret', 'generation', 'lost')
return { m[1], m[2], m[3], lost, tonumber(m[4] or '0'), fence, made }
