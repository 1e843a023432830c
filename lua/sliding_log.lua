-- One sliding log as a sorted set: a member for each request in the window, its
-- score the instant. ngx_rl_sliding_log.c decides the same.
--
-- A member is the request's name and a number of two bytes: upwards from 0 for
-- what a request takes, downwards from 65535 for what it is charged afterwards
-- (cost 0). So neither replaces the other, and what is given back can be named.
--
-- name: what the request's members start with; gives back by it, once. If want
-- is -1, gives back the newest.
-- Returns granted, remaining, reset_us, retry_us (-1: never), and what is to be
-- done to the set: a function, or false.

local function log_member(name, i)
    return name .. pack('>I2', i)
end

-- How many of a request's first members are there, most at most, and when they
-- were taken: all at one instant, so they are there up to some number.

local function log_members(key, name, most)
    local score = call('ZSCORE', key, log_member(name, most - 1))

    if score then
        return most, tonumber(score)
    end

    local low, high, at = 0, most - 1, nil

    while low < high do
        local mid = (low + high + 1) / 2
        mid = mid - mid % 1
        score = call('ZSCORE', key, log_member(name, mid - 1))

        if score then
            low, at = mid, tonumber(score)
        else
            high = mid - 1
        end
    end

    return low, at
end

-- NX: what is there already stands for another request.

local function log_add(key, name, score, n, from, step)
    while n > 0 do
        local batch = {}

        for _ = 1, math.min(n, 1000) do
            batch[#batch + 1] = score
            batch[#batch + 1] = log_member(name, from % 65536)
            from = from + step
        end

        n = n - call('ZADD', key, 'NX', unpack(batch))
    end
end

local function log_remove(key, name, n)
    for i = 0, n - 1, 1000 do
        local batch = {}

        for j = i, math.min(i + 999, n - 1) do
            batch[#batch + 1] = log_member(name, j)
        end

        call('ZREM', key, unpack(batch))
    end
end

function sliding_log(
    key, now, cost, want, capacity, window_us, name, charge)
    local used, expired, at = 0, 0, now
    local back, cutoff, removed = false, nil, 0

    -- settle: now is not before the newest, unless the clock was set back

    local newest = tonumber(call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2])

    if newest then
        back = newest > now + 1000000
        at = (newest <= now or back) and now or newest
        cutoff = at - window_us
        expired = call('ZCOUNT', key, '-inf', format('%.0f', cutoff))
        used = call('ZCARD', key) - expired
    end

    -- give

    if cost < 0 and charge and used > 0 then
        local taken_at = newest
        removed = math.min(-cost, used)

        if want ~= -1 then
            removed, taken_at = log_members(key, name, removed)
        end

        if removed > 0 and taken_at <= cutoff then
            removed = 0
        end

        if removed > 0 then
            used = used - removed

            -- behind as many as go stands the newest of those that stay

            local rank = format('%.0f', -removed - 1)

            if taken_at == newest and used > 0 then
                newest = tonumber(call('ZRANGE', key, rank, rank,
                                       'WITHSCORES')[2])
            end
        end
    end

    -- take

    local left = used < capacity and capacity - used or 0
    local granted, retry_us = 0, 0

    if want < -1 then
        local room = math.min(2 * capacity, 16383) - used

        granted = charge and room > 0 and math.min(-1 - want, room) or 0

    elseif cost > capacity then
        retry_us = -1

    elseif cost > left then
        local rank = format('%.0f', expired + used + cost - capacity - 1)
        local oldest = tonumber(call('ZRANGE', key, rank, rank,
                                     'WITHSCORES')[2])
        retry_us = math.min(oldest, at) + window_us - now

    elseif charge and cost >= 0 then
        granted = want <= cost and cost or want < left and want or left
    end

    if granted > 0 then
        newest = at
    end

    local reset_us = 0

    if used + granted > 0 then
        reset_us = math.min(newest, at) + window_us - now
    end

    -- a window that grew needs a longer life, also where all are denied; a set
    -- that is emptied before it is filled has none

    local short = reset_us > 0
                  and (used == 0
                       or call('PTTL', key) < reset_us / 1000 + 1000)

    if not (granted > 0 or removed > 0 or expired > 0 or back or short) then
        return 0, left, reset_us, retry_us, false
    end

    left = left > granted and left - granted or 0

    return granted, left, reset_us, retry_us, function()
        if expired > 0 then
            call('ZREMRANGEBYSCORE', key, '-inf', format('%.0f', cutoff))
        end

        if back then
            local score = format('%.0f', now)
            pull_back(key, score, score)
        end

        if removed > 0 and want == -1 then
            local members = call('ZRANGE', key, format('%.0f', -removed), '-1')

            for i = 1, removed, 1000 do
                call('ZREM', key,
                     unpack(members, i, math.min(i + 999, removed)))
            end

        elseif removed > 0 then
            log_remove(key, name, removed)
        end

        if granted > 0 then
            log_add(key, name, format('%.0f', at), granted,
                    cost > 0 and 0 or 65535, cost > 0 and 1 or -1)
        end

        if short then
            call('PEXPIRE', key,
                 format('%.0f', (window_us + -window_us % 1000) / 1000
                                + 60000))
        end
    end
end
