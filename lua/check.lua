-- Checks up to 16 counters of one client, all or nothing.
--
-- KEYS[1]: the hash of the client's bucket.
-- ARGV: six values for each counter: its field (8 bytes, no two the same),
-- cost (below 0: gives back), want, capacity, period_us, scale.
-- Answer: four integers for each counter: granted, remaining, reset_ms,
-- retry_ms (0: it could pay, -1: it never can).
--
-- When one counter cannot pay, none is charged: granted is 0 for all, and
-- remaining is what each has. Times are rounded up.

local args, key, call = ARGV, KEYS[1], redis.call
local n = #args

if #KEYS ~= 1 or n == 0 or n > 96 or n % 6 ~= 0 then
    return redis.error_reply('ERR ratelimit: wrong number of keys or arguments')
end

local states

if n == 6 then
    states = call('HMGET', key, args[1])

else
    local fields = {}

    for i = 1, n, 6 do
        fields[#fields + 1] = args[i]
    end

    states = call('HMGET', key, unpack(fields))
end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local answer, changes = {}, nil
local charge = true
local need_ms, keep_ms = 0, 0
local i = 1

while i < n do
    local cost, want = tonumber(args[i + 1]), tonumber(args[i + 2])
    local capacity = tonumber(args[i + 3])
    local period, scale = tonumber(args[i + 4]), tonumber(args[i + 5])

    -- the bounds of ngx_ratelimit_rate_t: in them, every product is exact;
    -- written so that a nan fails them

    if not (cost and want and capacity and period and scale
            and #args[i] == 8
            and cost >= -1073741824 and cost <= 1073741824 and cost % 1 == 0
            and want >= 0 and want <= 1073741824 and want % 1 == 0
            and capacity >= 1 and capacity <= 1073741824
            and capacity % 1 == 0
            and period >= 1 and period <= 31622400000000 and period % 1 == 0
            and scale >= 1 and scale <= 4194304 and scale % 1 == 0
            and capacity * period <= 1125899906842624 * scale)
    then
        return redis.error_reply('ERR ratelimit: malformed argument')
    end

    local granted, remaining, reset_us, retry_us, state, span_us
        = token_bucket(states[(i + 5) / 6], now, cost, want, capacity, period,
                       scale, charge)

    if charge and retry_us ~= 0 and i > 1 then

        -- those before were charged in vain: all once more, as a look

        charge, i = false, 1
        changes, need_ms, keep_ms = nil, 0, 0

    else
        local at = (i - 1) / 6 * 4
        local reset_ms = reset_us / 1000
        reset_ms = reset_ms + -reset_ms % 1

        if retry_us > 0 then
            retry_us = retry_us / 1000
            retry_us = retry_us + -retry_us % 1
        end

        answer[at + 1], answer[at + 2] = granted, remaining
        answer[at + 3], answer[at + 4] = reset_ms, retry_us

        if state then
            changes = changes or {}
            changes[#changes + 1] = args[i]
            changes[#changes + 1] = state

            if reset_ms > need_ms then
                need_ms = reset_ms
            end

            if span_us > keep_ms * 1000 then
                keep_ms = span_us / 1000
            end
        end

        charge = charge and retry_us == 0
        i = i + 6
    end
end

if not changes then
    return answer
end

local added = call('HSET', key, unpack(changes))

-- The slack on top of the longest span makes this rare: once a minute and key.
-- A number would do but for Redis 7.2, where 100000000 becomes "1e+08".

if call('PTTL', key) < need_ms + 1000 then
    call('PEXPIRE', key, string.format('%.0f', keep_ms + 60000))
end

-- A long bucket drops the counters that equal fresh ones whenever it has grown
-- by an eighth to a quarter (16 at 64), so that this costs each new counter the
-- same, however long the bucket is.

if added > 0 then
    local len = call('HLEN', key)

    if len >= 64 then
        local _, exponent = frexp(len)

        if len % 2 ^ (exponent - 3) < added then
            local all, drop = call('HGETALL', key), {}

            for j = 1, #all, 2 do
                local value = all[j + 1]

                if #value ~= 12 or unpack_state('>I7', value) < now then
                    drop[#drop + 1] = all[j]
                end
            end

            -- unpack has a limit, and so has what one call should block

            for j = 1, #drop, 1000 do
                call('HDEL', key, unpack(drop, j, math.min(j + 999, #drop)))
            end
        end
    end
end

return answer
