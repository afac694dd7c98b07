-- What wrk sends: POSTs with a key. KEYS=fresh: each has a key of its own; KEYS=same: a few
-- hundred keys over and over, answered from the store after the first time.
local run, thread, count = os.getenv("RUN") or "0", 0, 0
local fresh = os.getenv("KEYS") == "fresh"
local body = '{"amount": 1799, "currency": "eur", "customer": "c-1042"}'

function setup(t)
    t:set("thread", thread)
    thread = thread + 1
end

function request()
    count = count + 1
    local key = fresh and string.format('"%s-%d-%d"', run, thread, count) or string.format('"same-%d"', count % 500)
    return wrk.format("POST", "/charges", { ["Content-Type"] = "application/json", ["Idempotency-Key"] = key }, body)
end

function done(summary, latency)
    local failed = summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
    io.write(string.format("RESULT %.0f %.2f %.2f %d\n", summary.requests / (summary.duration / 1e6),
                           latency:percentile(50) / 1000, latency:percentile(99) / 1000, failed))
end
