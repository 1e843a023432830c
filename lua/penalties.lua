-- The penalties of one zone: what changes on a gateway goes to all others. A
-- script of its own, called by one worker of each gateway a few times a second.
--
-- KEYS[1], a sorted set: the names of penalized keys by the number of their last
--     change
-- KEYS[2], a hash: by the name when the penalty ends, when it is forgotten, in
--     milliseconds of Redis' clock, and what is else to know
-- ARGV[1], the number of the last change that the gateway knows
-- ARGV[2..], its own changes, four for each: name, milliseconds to the end, to
--     when it is forgotten, and the rest
--
-- The answer: the number of the last change that it has; then those behind
-- ARGV[1], up to 31, the oldest first, four texts for each as above. A gateway
-- reads no reply of more than 128 texts.

local call = redis.call

-- of penalized keys that are kept
local MOST = 32768

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local newest = call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
local last = tonumber(newest[2] or '0')
local longest = 0

for i = 2, #ARGV, 4 do
    local left = tonumber(ARGV[i + 2])

    -- one that is forgotten already is of no use: keys would get no TTL

    if left > 0 then

        -- no number is given twice, also where Redis has lost the last ones

        last = math.max(last + 1, time[1] * 1000000 + time[2])
        longest = math.max(longest, left)

        call('HSET', KEYS[2], ARGV[i],
             string.format('%.0f %.0f ', now + ARGV[i + 1], now + left)
             .. ARGV[i + 3])
        call('ZADD', KEYS[1], string.format('%.0f', last), ARGV[i])
    end
end

if longest > 0 then

    -- the oldest changes are forgotten first, or nearly so

    local oldest = call('ZRANGE', KEYS[1], 0, 63)
    local over = call('ZCARD', KEYS[1]) - MOST

    for i = 1, #oldest do
        local row = call('HGET', KEYS[2], oldest[i])
        local forgotten = row and row:match('^%d+ (%d+) ')

        if i <= over or not forgotten or tonumber(forgotten) <= now then
            call('ZREM', KEYS[1], oldest[i])
            call('HDEL', KEYS[2], oldest[i])
        end
    end

    for i = 1, 2 do
        if call('PTTL', KEYS[i]) < longest then
            call('PEXPIRE', KEYS[i], string.format('%.0f', longest))
        end
    end
end

local answer = {string.format('%.0f', last)}
local changes = call('ZRANGEBYSCORE', KEYS[1], '(' .. ARGV[1], '+inf',
                     'WITHSCORES', 'LIMIT', 0, 31)

for i = 1, #changes, 2 do
    local row = call('HGET', KEYS[2], changes[i])

    if row then
        local ends, forgotten, rest = row:match('^(%d+) (%d+) (.*)$')

        answer[#answer + 1] = changes[i]
        answer[#answer + 1] = string.format('%.0f', math.max(ends - now, 0))
        answer[#answer + 1] = string.format('%.0f',
                                            math.max(forgotten - now, 0))
        answer[#answer + 1] = rest
    end

    answer[1] = changes[i + 1]
end

return answer
