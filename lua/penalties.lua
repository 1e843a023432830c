-- The penalties of one zone: what changes on a gateway goes to all others. A
-- script of its own, called by one worker of each gateway a few times a second.
--
-- KEYS[1], a sorted set: the names of penalized keys by the number of their last
--     change
-- KEYS[2], a hash: by the name when the penalty ends, when it is forgotten and
--     when it changed, in milliseconds of Redis' clock, and what is else to
--     know; and the id of this data set
-- ARGV[1], the id of the data set that the gateway knows, 0: none
-- ARGV[2], the number of the last change that it knows
-- ARGV[3..], its own changes, five for each: name, milliseconds to the end, to
--     when it is forgotten, since it changed, and the rest
--
-- The answer: the id of the data set, 0: there is none; the number of the last
-- change that the answer has; then those behind ARGV[2], up to 25, the oldest
-- first, five texts for each as above. A gateway reads no reply of more than 128
-- texts.

local call = redis.call

-- of penalized keys that are kept
local MOST = 32768

-- the field of the id; names have 16 bytes
local SET = 'set'

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local now_us = time[1] * 1000000 + time[2]
local newest = call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
local last = tonumber(newest[2] or '0')
local longest = 0

-- without one of the two keys the data set is lost

local set = #newest > 0 and call('HGET', KEYS[2], SET) or '0'

local function number(n)
    return string.format('%.0f', n)
end

local function row_of(name)
    local row = call('HGET', KEYS[2], name)
    local ends, forgotten, changed, rest

    if row then
        ends, forgotten, changed, rest = row:match('^(%d+) (%d+) (%d+) (.*)$')
    end

    return tonumber(ends), tonumber(forgotten), tonumber(changed), rest
end

-- Whether Redis has that change, or a later one: a gateway sends it again in
-- case Redis has lost it. A change of a later time shows that the clock of Redis
-- was set back.

local function known(name, ends, changed, rest)
    local had_ends, _, had_changed, had_rest = row_of(name)

    if not had_ends or had_changed > now then
        return false
    end

    return had_changed > changed
           or had_rest == rest
              and math.abs(math.max(had_ends, now) - ends) <= 1000
end

for i = 3, #ARGV, 5 do
    local name, left, rest = ARGV[i], tonumber(ARGV[i + 2]), ARGV[i + 4]
    local ends, changed = now + ARGV[i + 1], now - ARGV[i + 3]

    -- one that is forgotten already is of no use: keys would get no TTL

    if left > 0 and not known(name, ends, changed, rest) then

        if set == '0' then
            set = number(now_us)
            call('HSET', KEYS[2], SET, set)
        end

        -- no number is given twice, also where Redis has lost the last ones

        last = math.max(last + 1, now_us)
        longest = math.max(longest, left)

        call('HSET', KEYS[2], name, number(ends) .. ' ' .. number(now + left)
                                    .. ' ' .. number(changed) .. ' ' .. rest)
        call('ZADD', KEYS[1], number(last), name)
    end
end

if longest > 0 then

    -- the oldest changes are forgotten first, or nearly so

    local oldest = call('ZRANGE', KEYS[1], 0, 63)
    local over = call('ZCARD', KEYS[1]) - MOST

    for i = 1, #oldest do
        local _, forgotten = row_of(oldest[i])

        if i <= over or not forgotten or forgotten <= now then
            call('ZREM', KEYS[1], oldest[i])
            call('HDEL', KEYS[2], oldest[i])
        end
    end

    for i = 1, 2 do
        if call('PTTL', KEYS[i]) < longest then
            call('PEXPIRE', KEYS[i], number(longest))
        end
    end
end

-- Numbers of another data set say nothing about this one. A lower number than
-- the gateway's is that of a replica which had not got the last changes.

local since = ARGV[2]

if ARGV[1] ~= set or tonumber(since) > last then
    since = '0'
end

local answer = {set, number(last)}
local changes = call('ZRANGEBYSCORE', KEYS[1], '(' .. since, '+inf',
                     'WITHSCORES', 'LIMIT', 0, 25)

for i = 1, #changes, 2 do
    local ends, forgotten, changed, rest = row_of(changes[i])

    if ends then
        answer[#answer + 1] = changes[i]
        answer[#answer + 1] = number(math.max(ends - now, 0))
        answer[#answer + 1] = number(math.max(forgotten - now, 0))
        answer[#answer + 1] = number(math.max(now - changed, 0))
        answer[#answer + 1] = rest
    end

    answer[2] = changes[i + 1]
end

return answer
