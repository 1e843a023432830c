-- Checks up to 16 counters of one client, all or nothing.
--
-- KEYS[1]: the hash of the client's bucket, KEYS[2] and on: the sorted set of
-- each counter that is one, in their order.
-- ARGV: seven values for each counter:
--   kind      t token_bucket and leaky_bucket, f fixed_window, s sliding_window,
--             l sliding_log, c concurrency; in upper case, its denial does not
--             count: nobody else goes without for it; with a calendar
--             "f<start>+<len>+<next>", the window that the gateway is in, from
--             its start on, and the length of the next, in seconds
--   field     8 bytes, no two the same
--   cost      below 0: gives back
--   want      takes more, up to so many, where they are; "want-keep" with t:
--             keep of the capacity are for others; -1: looks whether the
--             cost could be paid; below -1, with cost 0: takes -1 - want that
--             have been spent already, what is not there is owed, up to the
--             capacity; to give back: milliseconds since it was taken, or -1:
--             no request took it, an operator gives it;
--             t, f, s: "want+ahead/share" takes, besides, up to ahead of what
--             is left then, but a share-th of it at most
--   capacity
--   a, b      t: period_us, scale; f: window_us, 0, or with a calendar the
--             longest, and its number; s, l: window_us, 0; c: a permit's life
--             in us, 0; of the last two b above 0 has reset_ms be the time
-- and, where there are sorted sets, one last value: the request's name there.
-- Answer: four integers for each counter: granted, remaining, reset_ms,
-- retry_ms (0: it could pay, -1: it never can).
--
-- When one counter cannot pay, none is charged: granted is 0 for all, and
-- remaining is what each has. Times are rounded up.
--
-- All numbers are integers below 2^53, which doubles hold exactly; of two such
-- x and y, x / y - x / y % 1 is the exact quotient, rounded down, and
-- x + -x % 1 is ceil(x) without a call.
--
-- One counter in a hash runs straight from here to the last line: to make a
-- function takes Redis as long as to call one. Those of sorted sets are made
-- where there are any.

local args, key, call = ARGV, KEYS[1], redis.call
local frexp, pack, unpack_state = math.frexp, struct.pack, struct.unpack

local n = #args
local name = n % 7 == 1 and args[n]

n = n - n % 7

if not key or n == 0 or n > 112 or #args - n > 1 then
    return redis.error_reply('ERR ratelimit: wrong number of keys or arguments')
end

local alone, hashed = n == 7 and not KEYS[2], #KEYS <= n / 7
local state, states, sliding_log, concurrency

if alone then
    state = call('HGET', key, args[2])

else
    if hashed then
        local fields = {}

        for i = 2, n, 7 do
            fields[#fields + 1] = args[i]
        end

        states = call('HMGET', key, unpack(fields))
    end

    if KEYS[2] then
        -- include sets.lua
        -- include sliding_log.lua
        -- include concurrency.lua
    end
end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local answer, changes, commits
local charge = true
local need_us, keep_us = -1, 0
local i, set = 1, 1

while i < n do
    local kind = args[i]

    -- a text becomes a number in half the time that tonumber takes; one that
    -- is none is an error of Lua, which does not name it

    local cost, capacity = args[i + 2] + 0, args[i + 4] + 0
    local a, b = args[i + 5] + 0, args[i + 6] + 0
    local want, ahead, share, keep = tonumber(args[i + 3]), nil, nil, nil

    if not want then
        want, ahead, share = args[i + 3]:match('^(%d+)%+(%d+)/(%d+)$')

        if not want then
            want, keep = args[i + 3]:match('^(%-?%d+)%-(%d+)$')
            keep = tonumber(keep)
        end

        want, ahead, share = tonumber(want), tonumber(ahead), tonumber(share)
    end

    -- the bounds of ngx_rl_limit_t: in them, every product is exact;
    -- written so that a nan fails them

    if not (want and #args[i + 1] == 8
            and cost >= -1073741824 and cost <= 1073741824 and cost % 1 == 0
            and want >= (cost == 0 and -1073741825 or -1)
            and want <= 9007199254740992 and want % 1 == 0
            and (not share or cost >= 0 and share >= 1
                 and math.max(want, ahead, share) <= 1073741824)
            and (not keep or keep < capacity)
            and capacity >= 1 and capacity <= 1073741824
            and capacity % 1 == 0
            and a >= 1 and a <= 31622400000000 and a % 1 == 0
            and b >= 0 and b <= 4194304 and b % 1 == 0)
    then
        kind = nil
    end

    -- what a counter that is looked at only, or gives back, would change

    local change = charge and (want ~= -1 or cost < 0)
    local granted, left, retry_us = 0, 0, 0

    -- of a counter in a hash: the new state, or nil where it stays as it is;
    -- the instants after which the old and the new one equal a fresh one, and
    -- for how long one that is full is of use
    -- of one in a set: what is to be done to it, or nil

    local new, was_us, fresh_us, span_us = nil, -1, 0, a
    local reset_us, commit

    if not alone and states then
        state = states[(i + 6) / 7]
    end

    if (kind == 't' or kind == 'T') and hashed and b >= 1
       and capacity * a <= 1125899906842624 * b
    then
        -- include token_bucket.lua

    elseif kind and hashed
           and ((kind == 'f' or kind == 'F') and b == 0
                or #kind > 1 and kind:find('^[fF]%d+%+%d+%+%d+$')
                and b >= 1 and b <= 95 and b ~= 3)
    then
        -- include fixed_window.lua

    elseif (kind == 's' or kind == 'S') and hashed
           and capacity * ((a + -a % 1000) / 1000) <= 9007199254740992
    then
        -- include sliding_window.lua

    else
        set = set + 1

        local take = name and not share and KEYS[set]
                     and ((kind == 'l' or kind == 'L') and capacity <= 10000
                          and sliding_log
                          or (kind == 'c' or kind == 'C') and concurrency)

        if not take then
            return redis.error_reply('ERR ratelimit: malformed argument')
        end

        granted, left, reset_us, retry_us, commit
            = take(KEYS[set], now, cost, want, capacity, a, name, change)

        if b > 0 then
            reset_us = now
        end
    end

    local denied = retry_us ~= 0 and kind:lower() == kind

    if charge and denied and i > 1 then

        -- those before were charged in vain: all once more, as a look

        charge, i, set = false, 1, 1
        changes, commits, need_us, keep_us = nil, nil, -1, 0

    else
        local reset_ms = reset_us / 1000
        reset_ms = reset_ms + -reset_ms % 1

        if retry_us > 0 then
            retry_us = retry_us / 1000
            retry_us = retry_us + -retry_us % 1
        end

        if i == 1 then
            answer = { granted, left, reset_ms, retry_us }

        else
            local at = (i - 1) / 7 * 4

            answer[at + 1], answer[at + 2] = granted, left
            answer[at + 3], answer[at + 4] = reset_ms, retry_us
        end

        if commit then
            commits = commits or {}
            commits[#commits + 1] = commit
        end

        if new then
            if alone then
                changes = new

            else
                changes = changes or {}
                changes[#changes + 1] = args[i + 1]
                changes[#changes + 1] = new
            end

            -- the key must live until the minute of this instant is over; it
            -- does if the old instant is in that minute, or later

            if fresh_us - fresh_us % 60000000 > was_us then
                need_us = need_us > fresh_us and need_us or fresh_us
                keep_us = keep_us > span_us and keep_us or span_us
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

local added = alone and call('HSET', key, args[2], changes)
              or not alone and call('HSET', key, unpack(changes))

-- Only the first write of a minute needs this. A second more is for Redis'
-- clock, which stands still while a script runs.

if need_us >= 0 then
    local need_ms = (need_us - need_us % 60000000 + 61000000 - now) / 1000

    if call('PTTL', key) < need_ms then
        keep_us = keep_us / 1000 + 61000

        -- A number would do but for Redis 7.2, where 100000000 becomes "1e+08"

        call('PEXPIRE', key, string.format('%.0f', math.max(need_ms, keep_us)))
    end
end

-- A long bucket drops the counters that equal fresh ones whenever it has grown
-- by an eighth to a quarter (16 at 64). From 1,024 on it looks at about 512 when
-- 128 have come; the clock draws where it begins. So this costs each new counter
-- the same, and no call takes long, however long the bucket is.

if added > 0 then
    local len = call('HLEN', key)

    if len >= 64 then
        local _, exponent = frexp(len)

        if len % math.min(2 ^ (exponent - 3), 128) < added then
            local some = call('HSCAN', key, time[2], 'COUNT', '512')[2]
            local drop = {}

            for j = 1, #some, 2 do
                local value = some[j + 1]

                if #value < 7 or unpack_state('>I7', value) < now then
                    drop[#drop + 1] = some[j]
                end
            end

            -- unpack has a limit; a hash in one piece is answered whole

            for j = 1, #drop, 1000 do
                call('HDEL', key, unpack(drop, j, math.min(j + 999, #drop)))
            end
        end
    end
end

return answer
