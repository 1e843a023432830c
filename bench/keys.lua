-- The load, the same for every variant:
-- wrk -s keys.lua ... -- <keys> <salt> <path>
--
-- All requests are built beforehand; each draw picks one of <keys> API keys
-- uniformly, by a fixed sequence (Park and Miller), so every run asks the same.
-- <salt> gives another set of keys. requests.pl makes the same ones.

local requests, n, seed = {}, 1, 1

function init(args)
    n = tonumber(args[1])

    for i = 1, n do
        requests[i] = string.format("GET %s HTTP/1.1\r\nHost: bench\r\n"
                                    .. "X-API-Key: sk_live_%04d%020d\r\n\r\n",
                                    args[3], args[2], i)
    end
end

function request()
    seed = seed * 16807 % 2147483647
    return requests[seed % n + 1]
end

-- One line for measure.pl; times in microseconds.

function done(summary, latency, rates)
    local e = summary.errors

    io.write(string.format("result %d %d %d %d %d %d %d\n",
                           summary.requests, summary.duration, e.status,
                           e.connect + e.read + e.write + e.timeout,
                           latency:percentile(50), latency:percentile(99),
                           latency.max))
end
