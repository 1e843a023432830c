-- The load, the same for every variant:
-- wrk -s keys.lua ... -- <keys> <salt> <path> <seed>
--
-- Draws API keys from <keys> of them by Zipf's law: key k in proportion to 1/k.
-- What is drawn is fixed by <seed>, and all requests are built beforehand, so a
-- request costs the load as much as one that does not vary. <salt> gives another
-- set of keys. requests.pl makes the same ones.

local DRAWS = 2 ^ 19            -- more than one run asks in three seconds

local drawn, n, last = {}, 0, 1

-- Park and Miller: 0 < random < 1

local function generator(seed)
    local state = seed

    return function ()
        state = state * 16807 % 2147483647
        return state / 2147483647
    end
end

-- The least k with sum[k] > x.

local function find(sum, x)
    local low, high = 1, #sum

    while low < high do
        local middle = math.floor((low + high) / 2)

        if sum[middle] > x then
            high = middle
        else
            low = middle + 1
        end
    end

    return low
end

function init(args)
    local keys, salt, path, seed = tonumber(args[1]), args[2], args[3], args[4]
    local random = generator(tonumber(seed))
    local requests, sum, total = {}, {}, 0

    for k = 1, keys do
        total = total + 1 / k
        sum[k] = total
    end

    last = keys > 1 and DRAWS or 1

    for i = 1, last do
        local k = find(sum, random() * total)

        if not requests[k] then
            requests[k] = string.format("GET %s HTTP/1.1\r\nHost: bench\r\n"
                                        .. "X-API-Key: sk_live_%04d%020d\r\n"
                                        .. "\r\n", path, salt, k)
        end

        drawn[i] = requests[k]
    end
end

function request()
    n = n % last + 1
    return drawn[n]
end

-- One line for measure.pl; times in microseconds.

function done(summary, latency, rates)
    local e = summary.errors

    io.write(string.format("result %d %d %d %d %d %d %d %d\n",
                           summary.requests, summary.duration, e.status,
                           e.connect + e.read + e.write + e.timeout,
                           latency:percentile(50), latency:percentile(99),
                           latency:percentile(99.9), latency.max))
end
