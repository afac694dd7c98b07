-- once.lua - the protocol on one record in Redis: one call, one atomic step.
--
-- The same decisions as src/core/decide.c; the conformance suite tests both. C sends the verb and its arguments; the
-- answer
-- has the arm and the record, or a refusal. The script decides everything before it writes. Redis refuses either the
-- first write of a script or none (OOM, READONLY, MISCONF): a step that fails has changed nothing.
--
-- KEYS  1 PREFIX:r:ID     the record, a hash:
--           m   the fields of fixed length, packed as FORMAT says
--           t k tenant and key       p c s  recovery point, checkpoint, points passed
--           o   outcome as core/outcome.h encodes it; absent: it is empty, or in KEYS[7]
--           q   stored request, while the record may be executed again
--         No time to live while it is running or unknown (K7), its retention once it is finished (K8).
--       2 PREFIX:h:ID     earlier attempts of the record: m and the outcome's checksum, oldest first
--       3 PREFIX:a:ID     verdicts of operators, kept for ever
--       4 PREFIX:open     unfinished records: IDs by fence
--       5 PREFIX:fence    the last fence that was given (K2)
--       6 PREFIX:witness  how many writes each handle made, by its name
-- 7 PREFIX:b:ID     the outcome, if its retention is shorter than the record's; its time to live is that retention
-- ARGV  1 verb   2 name of the handle   3 the time in ms (0: Redis's own)
--       4 ms to keep expired records (0; more for tests, whose clock is not Redis's)
--       5 "1": count this call as a write in any case, so that a WAIT after it covers earlier writes, too
--       6 "1": the call was made before, and its answer was lost   7 the largest fence that the handle knows
--       8 ID   9... arguments of the verb
--
-- Answer: { 0, arm, now, writes counted or 0, m, t, k, p, c, o, q }, or { result, text }.

local rec, hist, audit, open, fence_key, witness, body = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local verb, handle, linger, again, id = ARGV[1], ARGV[2], tonumber(ARGV[4]), ARGV[6] == '1', ARGV[8]
local call = redis.call

local FORMAT = '>BBI2BI4i4I8I8I8I8I8I8i8I8i8I8c32c16'
local ATTEMPTS_KEPT = 500     -- earlier attempts of one record
local RELEASED_MS = 600000    -- a released record counts as absent, but a repeated release must still find it

local now = tonumber(ARGV[3])
if now == 0 then
    local t = call('TIME')
    now = t[1] * 1000 + math.floor(t[2] / 1000)
end

-- ---------------------------------------------------------------- the record

local function has(r, flag) return bit.band(r.flags, flag) ~= 0 end
local function set(r, flag, on)
    r.flags = on and bit.bor(r.flags, flag) or bit.band(r.flags, bit.bnot(flag))
end

local function pack(r)
    return struct.pack(FORMAT, REDIS_META_VERSION, r.state, r.flags, r.takeover, r.attempt, r.status, r.fence, r.first,
        r.created, r.claimed, r.lease, r.due, r.retention, r.finished, r.expires, r.body, r.print, r.nonce)
end

local function unpack_meta(m)
    if #m ~= REDIS_META_LEN or m:byte(1) ~= REDIS_META_VERSION then return nil end
    local r, version = {}, nil
    version, r.state, r.flags, r.takeover, r.attempt, r.status, r.fence, r.first, r.created, r.claimed, r.lease,
        r.due, r.retention, r.finished, r.expires, r.body, r.print, r.nonce = struct.unpack(FORMAT, m)
    return r
end

local function load()
    local v = call('HMGET', rec, 'm', 'p', 's')
    if not v[1] then return nil end
    local r = unpack_meta(v[1])
    if not r then return nil, 'the record is not one of ours' end
    r.point, r.points = v[2] or '', v[3] or ''
    return r
end

local function live(r) return r.state == ONCE_STATE_RUNNING and r.due > now end
local function over(r) -- expired or released: counts as absent
    if r.state == ONCE_STORED_RELEASED then return true end
    return (r.state == ONCE_STATE_SUCCEEDED or r.state == ONCE_STATE_FAILED) and r.expires ~= ONCE_NEVER and r.expires <= now
end
-- Headers and body have their own retention, and it is over (K8).
local function tombstone(r)
    return (r.state == ONCE_STATE_SUCCEEDED or r.state == ONCE_STATE_FAILED) and r.body > 0 and r.finished + r.body <= now
end
local function final(r) return r.state == ONCE_STATE_SUCCEEDED or (r.state == ONCE_STATE_FAILED and not has(r, REDIS_RETRYABLE)) end

-- ---------------------------------------------------------------- answering

local wrote = ARGV[5] == '1'

-- Ends every call: counts the handle's writes, so that after a restart of Redis, or a failover, the handle can tell how
-- many acknowledged writes are lost.
local function finish_with(answer)
    answer[4] = wrote and call('HINCRBY', witness, handle, 1) or 0
    return answer
end

local function refuse(code, text) return finish_with({ code, text, now, 0 }) end

local function answer(arm, r, fields, want_request)
    if not r then return finish_with({ 0, arm, now, 0 }) end
    local v = { false, false, false, false, false, false }
    if fields then
        v = call('HMGET', rec, 't', 'k', 'p', 'c', 'o')
        if has(r, REDIS_APART) then v[5] = call('GET', body) end
        v[6] = want_request and call('HGET', rec, 'q') or false
    end
    return finish_with({ 0, arm, now, 0, pack(r), v[1], v[2], v[3], v[4], v[5], v[6] })
end

-- ---------------------------------------------------------------- writing

-- The largest fence that this handle knows is a lower bound: a server that lost its last seconds would give fences
-- again.
local function next_fence()
    local floor = tonumber(ARGV[7])
    local f = call('INCR', fence_key)
    if f <= floor then
        f = floor + 1
        call('SET', fence_key, f)
    end
    return f
end

local function keep_for(r, ms)
    call('PEXPIRE', rec, ms)
    if has(r, REDIS_ARCHIVE) then call('PEXPIRE', hist, ms) end
end

-- Stores m, and sets the time to live and the membership in PREFIX:open accordingly.
local function store(r)
    wrote = true
    call('HSET', rec, 'm', pack(r))
    if r.state == ONCE_STORED_RELEASED then
        keep_for(r, RELEASED_MS + linger)
    elseif r.state == ONCE_STATE_SUCCEEDED or r.state == ONCE_STATE_FAILED then
        keep_for(r, math.max(r.expires - now, 1) + linger)
    elseif r.attempt > 1 or has(r, REDIS_ARCHIVE) or has(r, REDIS_VERDICT) then
        call('PERSIST', rec)
        call('PERSIST', hist)
    end
    if r.state == ONCE_STATE_RUNNING or (r.state == ONCE_STATE_FAILED and has(r, REDIS_RETRYABLE)) then
        call('ZADD', open, r.fence, id)
    else
        call('ZREM', open, id)
    end
end

local function sum_of(r)
    if has(r, REDIS_APART) then return call('GETRANGE', body, -8, -1) end
    return (call('HGET', rec, 'o') or ''):sub(-8)
end

-- Stores the outcome; after end_with().
local function put_outcome(r, outcome)
    local apart = r.body > 0 and r.state ~= ONCE_STATE_UNKNOWN
    set(r, REDIS_APART, apart)
    if apart then
        call('SET', body, outcome, 'PX', r.body + linger)
    else
        call('HSET', rec, 'o', outcome)
    end
end

local function drop_outcome(r)
    call('HDEL', rec, 'o')
    if has(r, REDIS_APART) then call('DEL', body) end
end

local function end_with(r, state, retryable, status, undelivered)
    r.state, r.status, r.due = state, status, 0
    set(r, REDIS_RETRYABLE, retryable)
    set(r, REDIS_UNDELIVERED, undelivered)
    r.finished = math.max(now, r.claimed) -- a clock that was set back must not make a negative age
    r.expires = r.finished + r.retention
    if state == ONCE_STATE_UNKNOWN or r.retention == ONCE_NEVER then r.expires = ONCE_NEVER end
    if state == ONCE_STORED_RELEASED then r.expires = r.finished end
end

-- Moves the attempt to the list of earlier ones, with what a repeated call is compared with.
local function archive(r)
    local sum = ''
    if r.state ~= ONCE_STATE_RUNNING then
        sum = sum_of(r)
    else
        r.state, r.finished, r.due = ONCE_STORED_SUPERSEDED, math.max(now, r.claimed), 0
    end
    call('RPUSH', hist, pack(r) .. sum)
    call('LTRIM', hist, -ATTEMPTS_KEPT, -1)
end

-- An earlier attempt of the record, by its fence, and its outcome's checksum.
local function archived(fence)
    for _, line in ipairs(call('LRANGE', hist, 0, -1)) do
        local r = unpack_meta(line:sub(1, REDIS_META_LEN))
        if r and r.fence == fence then return r, line:sub(REDIS_META_LEN + 1) end
    end
    return nil
end

-- ---------------------------------------------------------------- claim, take over

-- A holder with intent records a point before it sends: without one, nothing was sent.
local function unsent(r) return r.state == ONCE_STATE_RUNNING and has(r, REDIS_INTENT) and r.point == '' end

-- The decision about a holder whose lease has ended: the arm, and "take", "escalate" or nothing.
local function decide_abandoned(r, takeover, by_claim)
    if unsent(r) then return ONCE_ARM_EXECUTE, 'take' end
    if takeover == ONCE_TAKEOVER_COMPLETER and not by_claim then return ONCE_ARM_PROBE, 'take' end
    if takeover == ONCE_TAKEOVER_COMPLETER and r.takeover == ONCE_TAKEOVER_COMPLETER then return ONCE_ARM_IN_PROGRESS end
    if takeover == ONCE_TAKEOVER_RERUN then return ONCE_ARM_EXECUTE, 'take' end
    if takeover == ONCE_TAKEOVER_PROBE then return ONCE_ARM_PROBE, 'take' end
    return ONCE_ARM_UNKNOWN, 'escalate'
end

local function decide_claim(r, c)
    if not r or over(r) then
        local skew = math.min(math.floor(c.retention / 2), ONCE_KEY_SKEW_MS_MAX)
        if c.born ~= ONCE_NEVER and (c.born - now > skew or now - c.born >= c.retention - skew) then return ONCE_ARM_EXPIRED end
        return ONCE_ARM_EXECUTE, 'create'
    end
    if r.print ~= c.print then return ONCE_ARM_MISMATCH end -- K6: before any other check
    if final(r) then return ONCE_ARM_REPLAY end
    if r.state == ONCE_STATE_FAILED then return ONCE_ARM_EXECUTE, 'take' end
    if r.state == ONCE_STATE_UNKNOWN then return ONCE_ARM_UNKNOWN end
    if r.nonce == c.nonce then return has(r, REDIS_PROBING) and ONCE_ARM_PROBE or ONCE_ARM_EXECUTE, 'renew' end
    if live(r) then return ONCE_ARM_IN_PROGRESS end
    return decide_abandoned(r, c.takeover, true)
end

local function decide_take_over(r, c)
    if not r or over(r) then return ONCE_ARM_ABSENT end
    if r.state == ONCE_STATE_RUNNING and r.nonce == c.nonce then return has(r, REDIS_PROBING) and ONCE_ARM_PROBE or ONCE_ARM_EXECUTE, 'renew' end
    if r.fence == c.seen then
        if r.state == ONCE_STATE_RUNNING and not live(r) then return decide_abandoned(r, r.takeover, false) end
        if r.state == ONCE_STATE_FAILED and has(r, REDIS_RETRYABLE) then return ONCE_ARM_EXECUTE, 'take' end
        if r.state == ONCE_STATE_UNKNOWN and again then return ONCE_ARM_UNKNOWN end
    end
    return ONCE_ARM_FENCED
end

local function create(old, c)
    local r = { state = ONCE_STATE_RUNNING, flags = 0, takeover = c.takeover, attempt = 1, status = 0, fence = next_fence(),
        created = now, claimed = now, lease = c.lease, due = now + c.lease, retention = c.retention, finished = 0,
        expires = 0, body = c.body, print = c.print, nonce = c.nonce, point = '', points = '' }
    r.first = r.fence
    set(r, REDIS_INTENT, c.intent)
    set(r, REDIS_REQUEST, c.request ~= '')
    if old and old.state == ONCE_STORED_RELEASED then
        archive(old)
        set(r, REDIS_ARCHIVE, true)
    end
    if old then call('DEL', rec, body) end
    if c.tenant ~= '' then call('HSET', rec, 't', c.tenant) end
    if c.key ~= '' then call('HSET', rec, 'k', c.key) end
    if c.request ~= '' then call('HSET', rec, 'q', c.request) end
    store(r)
    return answer(ONCE_ARM_EXECUTE, r)
end

local function take(old, c, arm)
    local holds = old.state ~= ONCE_STATE_RUNNING or unsent(old)
    local requested = has(old, REDIS_REQUEST) or c.request ~= ''
    archive(old)
    local r = { state = ONCE_STATE_RUNNING, flags = REDIS_ARCHIVE, takeover = c.takeover or old.takeover, attempt = old.attempt + 1,
        status = 0, fence = next_fence(), first = old.first, created = old.created,
        claimed = math.max(now, old.created), lease = c.lease ~= 0 and c.lease or old.lease,
        retention = c.retention or old.retention, finished = 0, expires = 0, body = c.body or old.body, print = old.print, nonce = c.nonce }
    r.due = now + r.lease
    set(r, REDIS_PROBING, arm == ONCE_ARM_PROBE)
    set(r, REDIS_INTENT, c.intent and holds)
    set(r, REDIS_DOUBT, not holds)
    set(r, REDIS_REQUEST, requested)
    drop_outcome(old)
    if c.request ~= '' then call('HSET', rec, 'q', c.request) end
    store(r)
    return r
end

-- FENCED, with the record if it is still the same life of the key (K3, K5, K6).
local function fenced(r, fence)
    local same = r and r.fence == fence
    if r and not same then
        local own = archived(fence)
        same = own and own.first == r.first and own.print == r.print
    end
    if not same or over(r) then return answer(ONCE_ARM_FENCED) end
    return answer(ONCE_ARM_FENCED, r, true)
end

local function claim(r, c)
    local arm, change
    if c.seen then arm, change = decide_take_over(r, c) else arm, change = decide_claim(r, c) end
    if change == 'create' then return create(r, c) end
    if change == 'take' then
        local a = answer(arm, take(r, c, arm), true, c.seen)
        if not c.seen then a[6], a[7] = false, false end -- a claimant knows tenant and key
        return a
    end
    if change == 'renew' then
        r.due = now + r.lease
        store(r)
        return answer(arm, r, true, c.seen)
    end
    if change == 'escalate' then
        end_with(r, ONCE_STATE_UNKNOWN, false, 0)
        store(r)
        return answer(ONCE_ARM_UNKNOWN, r, true)
    end
    if arm == ONCE_ARM_MISMATCH or arm == ONCE_ARM_ABSENT or arm == ONCE_ARM_EXPIRED then return answer(arm) end
    if arm == ONCE_ARM_FENCED then return fenced(r, c.seen) end
    return answer(arm, r, true)
end

-- ---------------------------------------------------------------- verbs of a holder

-- Whether this outcome ended the attempt. `sum` is the checksum of the stored one. A tombstone never matches.
local function ended_so(r, sum, f)
    return r.state == f.state and has(r, REDIS_RETRYABLE) == f.retryable and has(r, REDIS_UNDELIVERED) == f.undelivered and r.status == f.status and not tombstone(r) and sum == f.outcome:sub(-8)
end

local function released_so(r, sum)
    return r.state == ONCE_STORED_RELEASED or has(r, REDIS_RELEASED_ABANDONED) or
        (r.state == ONCE_STATE_FAILED and has(r, REDIS_RETRYABLE) and r.status == 0 and sum == '')
end

-- Runs `step` for the holder of the newest grant; others are fenced (K3). K10: a repeated call finds its effect in
-- its own
-- attempt, even if the record has changed since.
local function held(r, fence, step, was_done)
    if r and r.fence == fence then return step(r) end
    if again and was_done then
        local own, sum = archived(fence)
        if own and was_done(own, sum) then return answer(ONCE_ARM_DONE, own) end
    end
    return fenced(r, fence)
end

local function extend(r, fence, lease)
    return held(r, fence, function()
        if r.state ~= ONCE_STATE_RUNNING then return fenced(r, fence) end
        r.due = now + (lease ~= 0 and lease or r.lease)
        store(r)
        return answer(ONCE_ARM_DONE, r)
    end)
end

local function advance(r, fence, point, checkpoint, nonce)
    if again and r and r.points:find('\n' .. point .. ' ' .. nonce .. '\n', 1, true) then return answer(ONCE_ARM_DONE, r) end
    if again and r and r.points:sub(1, #point + #nonce + 2) == point .. ' ' .. nonce .. '\n' then return answer(ONCE_ARM_DONE, r) end
    return held(r, fence, function()
        if r.state ~= ONCE_STATE_RUNNING then return fenced(r, fence) end
        if r.point ~= point then
            local count = 0
            for name in r.points:gmatch('([^\n ]+) [^\n]*\n') do
                if name == point then
                    return refuse(ONCE_INVALID, "recovery point '" .. point .. "' was passed before; now at '" .. r.point .. "'")
                end
                count = count + 1
            end
            if count >= ONCE_POINT_COUNT_MAX then
                return refuse(ONCE_LIMIT, 'record passed ' .. count .. ' recovery points, the limit')
            end
            call('HSET', rec, 'p', point, 's', r.points .. point .. ' ' .. nonce .. '\n')
        end
        call('HSET', rec, 'c', checkpoint)
        r.due = now + r.lease
        store(r)
        return answer(ONCE_ARM_DONE, r)
    end)
end

local function drop_request(r)
    if has(r, REDIS_REQUEST) then call('HDEL', rec, 'q') end
    set(r, REDIS_REQUEST, false)
end

local function finish(r, fence, f)
    return held(r, fence, function()
        if r.state ~= ONCE_STATE_RUNNING then
            if ended_so(r, sum_of(r), f) then return answer(ONCE_ARM_DONE, r) end
            return fenced(r, fence)
        end
        end_with(r, f.state, f.retryable, f.status, f.undelivered)
        put_outcome(r, f.outcome)
        if final(r) then drop_request(r) end
        store(r)
        return answer(ONCE_ARM_DONE, r)
    end, function(own, sum) return ended_so(own, sum, f) end)
end

-- A release says that this attempt did nothing; it says nothing about others (ADR 8).
local function release(r, fence)
    return held(r, fence, function()
        local sum = r.state == ONCE_STATE_FAILED and sum_of(r) or ''
        if released_so(r, sum) then return answer(ONCE_ARM_DONE) end
        if r.state ~= ONCE_STATE_RUNNING then return fenced(r, fence) end
        if has(r, REDIS_DOUBT) then
            set(r, REDIS_RELEASED_ABANDONED, true)
            r.due = r.claimed
        elseif r.attempt == 1 and (r.points == '' or r.points:find('^once:sending [^\n]*\n$')) then
            end_with(r, ONCE_STORED_RELEASED, false, 0)
            drop_request(r)
            call('HDEL', rec, 'p', 'c', 's')
        else
            end_with(r, ONCE_STATE_FAILED, true, 0)
        end
        store(r)
        return answer(ONCE_ARM_DONE)
    end, function(own, sum)
        return released_so(own, sum)
    end)
end

-- ---------------------------------------------------------------- look up, resolve

local function lookup(r, want_request)
    if not r or over(r) then return answer(ONCE_ARM_ABSENT) end
    return answer(ONCE_ARM_FOUND, r, true, want_request)
end

local function resolve(r, v)
    if r and r.nonce == v.nonce then return answer(ONCE_ARM_DONE, r) end -- the same verdict again, after its first
                                                                         -- answer was lost
    if not r or over(r) then return answer(ONCE_ARM_ABSENT) end
    if v.seen ~= 0 and v.seen ~= r.fence then return answer(ONCE_ARM_FENCED, r, true) end
    if live(r) then return answer(ONCE_ARM_IN_PROGRESS, r, true) end
    if r.state ~= ONCE_STATE_UNKNOWN and r.state ~= ONCE_STATE_RUNNING then return answer(ONCE_ARM_REPLAY, r, true) end
    archive(r)
    -- A verdict is its own grant: its fence shuts out a holder that was wrongly thought dead.
    r.fence, r.claimed, r.nonce = next_fence(), math.max(now, r.created), v.nonce
    drop_outcome(r)
    r.flags = bit.bor(bit.band(r.flags, REDIS_REQUEST), REDIS_ARCHIVE, REDIS_VERDICT)
    if v.verdict == ONCE_VERDICT_DONE then
        end_with(r, v.state, false, v.status)
        put_outcome(r, v.outcome)
    elseif v.verdict == ONCE_VERDICT_NOT_DONE then
        end_with(r, ONCE_STATE_FAILED, true, 0)
    else
        end_with(r, ONCE_STORED_RELEASED, false, 0)
    end
    if v.verdict ~= ONCE_VERDICT_NOT_DONE then drop_request(r) end
    store(r)
    call('RPUSH', audit, struct.pack('>I8I8BI4I4', now, r.fence, v.verdict, #v.actor, #v.reason) .. v.actor .. v.reason)
    call('LTRIM', audit, -ATTEMPTS_KEPT, -1)
    return answer(ONCE_ARM_DONE, r)
end

-- ---------------------------------------------------------------- dispatch

local r, fault = load()
if fault then return refuse(ONCE_CORRUPT, fault) end
local fence = tonumber(ARGV[9])
if verb == 'claim' then
    return claim(r, { print = ARGV[9], lease = tonumber(ARGV[10]), retention = tonumber(ARGV[11]),
        takeover = tonumber(ARGV[12]), intent = ARGV[13] == '1', nonce = ARGV[14], tenant = ARGV[15], key = ARGV[16],
        request = ARGV[17], body = tonumber(ARGV[18]), born = tonumber(ARGV[19]) })
elseif verb == 'take' then
    return claim(r, { seen = fence, lease = tonumber(ARGV[10]), intent = ARGV[11] == '1', nonce = ARGV[12], request = '' })
elseif verb == 'extend' then
    return extend(r, fence, tonumber(ARGV[10]))
elseif verb == 'advance' then
    return advance(r, fence, ARGV[10], ARGV[11], ARGV[12])
elseif verb == 'finish' then
    return finish(r, fence, { state = tonumber(ARGV[10]), retryable = ARGV[11] == '1', status = tonumber(ARGV[12]),
        outcome = ARGV[13], undelivered = ARGV[14] == '1' })
elseif verb == 'release' then
    return release(r, fence)
elseif verb == 'lookup' then
    return lookup(r, ARGV[9] == '1')
elseif verb == 'resolve' then
    return resolve(r, { seen = fence, verdict = tonumber(ARGV[10]), state = tonumber(ARGV[11]),
        status = tonumber(ARGV[12]), outcome = ARGV[13], nonce = ARGV[14], actor = ARGV[15], reason = ARGV[16] })
end
return redis.error_reply("ONCE there is no verb '" .. verb .. "'")
