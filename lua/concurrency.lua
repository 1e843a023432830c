-- Requests in flight as a sorted set of permits: a member for each request, its
-- score the deadline. ngx_rl_concurrency_take() decides the same; here a request that takes again renews its permit.
--
-- cost: 1 takes, 0 looks, below 0 frees. want: 1 says that the request runs, so
-- that its permit, if lost, is made again even if all are in use.

function concurrency(
    key, now, cost, want, capacity, life_us, name, charge)

    local time = format('%.0f', now)
    local deadline = format('%.0f', now + life_us)

    local in_use, expired, own = call('ZCARD', key), 0, false

    if in_use > 0 then
        expired = call('ZCOUNT', key, '-inf', time)
        in_use = in_use - expired

        if cost ~= 0 then
            own = tonumber(call('ZSCORE', key, name) or 0) > now
        end
    end

    local takes, frees = charge and cost > 0, charge and cost < 0 and own
    local back, retry_us = false, 0

    if cost > 0 and in_use >= capacity and not own and want <= 0 then
        takes, retry_us = false, 1000000
    end

    -- permits from before the clock was set back would last too long; the live
    -- gateways are such a set, without a limit

    if retry_us > 0 or capacity == 1073741824 then
        local latest = call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2]
        back = tonumber(latest or 0) > now + life_us + 1000000
    end

    if takes and not own then
        in_use = in_use + 1
    elseif frees then
        in_use = in_use - 1
    end

    return takes and 1 or 0, in_use < capacity and capacity - in_use or 0, 0,
           retry_us, (takes or frees or back or expired > 0) and function()
        if expired > 0 then
            call('ZREMRANGEBYSCORE', key, '-inf', time)
        end

        if back then
            pull_back(key, deadline, deadline)
        end

        if frees then
            call('ZREM', key, name)
        end

        if takes then
            call('ZADD', key, deadline, name)

            if call('PTTL', key) < life_us / 1000 + 1000 then
                call('PEXPIRE', key,
                     format('%.0f', (life_us + -life_us % 1000) / 1000
                                    + 60000))
            end
        end
    end
end
