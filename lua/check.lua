-- Checks up to 16 counters of one client, all or nothing.
--
-- KEYS[1]: the hash of the client's bucket, KEYS[2] and on: the sorted set of
-- each counter that is one, in their order.
-- ARGV: seven values for each counter:
--   kind      t token_bucket and leaky_bucket, f fixed_window, s sliding_window,
--             l sliding_log, c concurrency; in upper case, its denial does not
--             count: nobody else goes without for it
--   field     8 bytes, no two the same
--   cost      below 0: gives back
--   want      takes more, up to so many, where they are; -1: looks whether the
--             cost could be paid; below -1, with cost 0: takes -1 - want that
--             have been spent already, what is not there is owed, up to the
--             capacity; to give back: milliseconds since it was taken;
--             t, f, s: "want+ahead/share" takes, besides, up to ahead of what
--             is left then, but a share-th of it at most
--   capacity
--   a, b      t: period_us, scale; f: window_us, 0 or 1 (day) or 2 (month);
--             s, l: window_us, 0; c: a permit's life in us, 0
-- and, where there are sorted sets, one last value: the request's name there.
-- Answer: four integers for each counter: granted, remaining, reset_ms,
-- retry_ms (0: it could pay, -1: it never can).
--
-- When one counter cannot pay, none is charged: granted is 0 for all, and
-- remaining is what each has. Times are rounded up.

local args, key = ARGV, KEYS[1]
local n = #args
local name = n % 7 == 1 and args[n]

n = n - n % 7

if #KEYS == 0 or n == 0 or n > 112 or #args - n > 1 then
    return redis.error_reply('ERR ratelimit: wrong number of keys or arguments')
end

local states

if not hashed then
    states = {}

elseif n == 7 then
    states = call('HMGET', key, args[2])

else
    local fields = {}

    for i = 2, n, 7 do
        fields[#fields + 1] = args[i]
    end

    states = call('HMGET', key, unpack(fields))
end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local answer, changes, commits = {}, nil, nil
local charge = true
local need_ms, keep_ms = 0, 0
local i, set = 1, 1

while i < n do
    local letter = args[i]
    local cost, want = tonumber(args[i + 2]), tonumber(args[i + 3])
    local capacity = tonumber(args[i + 4])
    local a, b = tonumber(args[i + 5]), tonumber(args[i + 6])
    local ahead, share

    if not want then
        want, ahead, share = args[i + 3]:match('^(%d+)%+(%d+)/(%d+)$')
        want, ahead, share = tonumber(want), tonumber(ahead), tonumber(share)
    end

    -- the bounds of ngx_ratelimit_limit_t: in them, every product is exact;
    -- written so that a nan fails them

    local take, set_key

    if not (cost and want and capacity and a and b
            and #args[i + 1] == 8
            and cost >= -1073741824 and cost <= 1073741824 and cost % 1 == 0
            and want >= (cost == 0 and -1073741825 or -1)
            and want <= 9007199254740992 and want % 1 == 0
            and (not share or cost >= 0 and share >= 1
                 and math.max(want, ahead, share) <= 1073741824)
            and capacity >= 1 and capacity <= 1073741824
            and capacity % 1 == 0
            and a >= 1 and a <= 31622400000000 and a % 1 == 0
            and b >= 0 and b <= 4194304 and b % 1 == 0)
    then
        take = false

    elseif letter == 't' or letter == 'T' then
        take = b >= 1 and capacity * a <= 1125899906842624 * b
               and token_bucket

    elseif letter == 'f' or letter == 'F' then
        take = b <= 2 and fixed_window

    elseif letter == 's' or letter == 'S' then
        take = capacity * ((a + -a % 1000) / 1000) <= 9007199254740992
               and sliding_window

    else
        set = set + 1
        set_key = name and not share and KEYS[set]

        if letter == 'l' or letter == 'L' then
            take = set_key and capacity <= 10000 and sliding_log
        elseif letter == 'c' or letter == 'C' then
            take = set_key and concurrency
        end
    end

    if not take then
        return redis.error_reply('ERR ratelimit: malformed argument')
    end

    -- what a counter that is looked at only, or gives back, would change

    local change = charge and (want ~= -1 or cost < 0)
    local granted, remaining, reset_us, retry_us, new, keep_us, need_us

    if set_key then
        granted, remaining, reset_us, retry_us, new
            = take(set_key, now, cost, want, capacity, a, name, change)

    else
        if share and change then
            local _, left = take(states[(i + 6) / 7], now, cost, 0, capacity,
                                 a, b, false)

            -- above what is left it stays there: cut down, or denied

            want = math.max(cost, want)
            left = (left - want) / share
            want = want + math.min(ahead, left - left % 1)
        end

        granted, remaining, reset_us, retry_us, new, keep_us, need_us
            = take(states[(i + 6) / 7], now, cost, want, capacity, a, b,
                   change)
    end

    local denied = retry_us ~= 0 and letter:lower() == letter

    if charge and denied and i > 1 then

        -- those before were charged in vain: all once more, as a look

        charge, i, set = false, 1, 1
        changes, commits, need_ms, keep_ms = nil, nil, 0, 0

    else
        local at = (i - 1) / 7 * 4
        local reset_ms = reset_us / 1000
        reset_ms = reset_ms + -reset_ms % 1

        if retry_us > 0 then
            retry_us = retry_us / 1000
            retry_us = retry_us + -retry_us % 1
        end

        answer[at + 1], answer[at + 2] = granted, remaining
        answer[at + 3], answer[at + 4] = reset_ms, retry_us

        if new and set_key then
            commits = commits or {}
            commits[#commits + 1] = new

        elseif new then
            changes = changes or {}
            changes[#changes + 1] = args[i + 1]
            changes[#changes + 1] = new

            need_us = need_us or reset_us

            if need_us > need_ms * 1000 then
                need_ms = need_us / 1000
            end

            if keep_us < need_us then
                keep_us = need_us
            end

            if keep_us > keep_ms * 1000 then
                keep_ms = keep_us / 1000
            end
        end

        charge = charge and not denied
        i = i + 7
    end
end

for j = 1, commits and #commits or 0 do
    commits[j]()
end

if not changes then
    return answer
end

local added = call('HSET', key, unpack(changes))

-- The slack on top of the longest span makes this rare: once a minute and key.
-- A number would do but for Redis 7.2, where 100000000 becomes "1e+08".

if call('PTTL', key) < need_ms + 1000 then
    call('PEXPIRE', key, format('%.0f', keep_ms + 60000))
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

                if #value < 7 or unpack_state('>I7', value) < now then
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
