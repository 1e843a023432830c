-- As much of Redis as the scripts use, on a virtual clock: strict where Redis
-- is (types of arguments, no new globals), and counting what a call costs.
-- Returns the functions that the test drives it with.

local store, expires_ms = {}, {}
local now_us = 0
local calls = {}
local commands = {}

redis, struct = {}, {}
KEYS, ARGV = {}, {}

local function alive(key)
    if expires_ms[key] and expires_ms[key] <= math.floor(now_us / 1000) then
        store[key], expires_ms[key] = nil, nil
    end

    return store[key]
end

function commands.TIME()
    return { string.format('%d', math.floor(now_us / 1000000)),
             string.format('%d', now_us % 1000000) }
end

function commands.HGET(key, field)
    return (alive(key) or {})[field] or false
end

function commands.HMGET(key, ...)
    local hash, values = alive(key) or {}, {}

    for i, field in ipairs({ ... }) do
        values[i] = hash[field] or false
    end

    return values
end

function commands.HSET(key, ...)
    local hash, added, pairs_given = alive(key) or {}, 0, { ... }

    assert(#pairs_given > 0 and #pairs_given % 2 == 0, 'HSET arguments')

    for i = 1, #pairs_given, 2 do
        added = added + (hash[pairs_given[i]] and 0 or 1)
        hash[pairs_given[i]] = pairs_given[i + 1]
    end

    store[key] = hash

    return added
end

function commands.HLEN(key)
    local n = 0

    for _ in pairs(alive(key) or {}) do
        n = n + 1
    end

    return n
end

-- A short hash as a whole, of a long one COUNT fields from the cursor on.
function commands.HSCAN(key, cursor, _, count)
    local all, some = {}, {}

    for field, value in pairs(alive(key) or {}) do
        all[#all + 1] = { field, value }
    end

    for i = 1, #all <= 512 and #all or math.min(count, #all) do
        local at = all[(cursor + i - 1) % #all + 1]

        some[#some + 1], some[#some + 2] = at[1], at[2]
    end

    return { '0', some }
end

function commands.HDEL(key, ...)
    local hash = alive(key)

    assert(select('#', ...) > 0, 'HDEL arguments')

    for _, field in ipairs({ ... }) do
        hash[field] = nil
    end

    if next(hash) == nil then
        store[key], expires_ms[key] = nil, nil
    end
end

-- A sorted set: scores by member, and the members in the order of both.

local function before(set, a, b)
    local one, two = set.scores[a], set.scores[b]

    return one < two or one == two and a < b
end

-- Where in the order the first member stands that is not before this one.

local function zset_find(set, member)
    local low, high = 1, #set.order + 1

    while low < high do
        local mid = math.floor((low + high) / 2)

        if before(set, set.order[mid], member) then
            low = mid + 1
        else
            high = mid
        end
    end

    return low
end

local function zset_insert(set, member, score)
    set.scores[member] = score
    table.insert(set.order, zset_find(set, member), member)
end

local function zset_remove(set, member)
    if not set.scores[member] then
        return 0
    end

    table.remove(set.order, zset_find(set, member))
    set.scores[member] = nil

    return 1
end

local function zset_trim(key, set)
    if #set.order == 0 then
        store[key], expires_ms[key] = nil, nil
    end
end

local function zset(key)
    local set = alive(key) or { scores = {}, order = {} }

    assert(set.order, 'WRONGTYPE')

    return set
end

-- Whether a score is in a range: "-inf", "+inf", "5", "(5".

local function above(score, min)
    if min:sub(1, 1) == '(' then
        return score > assert(tonumber(min:sub(2)))
    end

    return min == '-inf' or min ~= '+inf' and score >= assert(tonumber(min))
end

local function below(score, max)
    if max:sub(1, 1) == '(' then
        return score < assert(tonumber(max:sub(2)))
    end

    return max == '+inf' or max ~= '-inf' and score <= assert(tonumber(max))
end

local function zset_range(set, min, max)
    local members = {}

    for _, member in ipairs(set.order) do
        local score = set.scores[member]

        if not below(score, max) then
            break
        end

        if above(score, min) then
            members[#members + 1] = member
        end
    end

    return members
end

function commands.ZADD(key, ...)
    local set, added, args = zset(key), 0, { ... }
    local nx = args[1] == 'NX'

    assert(#args > 1 and (#args - (nx and 1 or 0)) % 2 == 0, 'ZADD arguments')

    for i = nx and 2 or 1, #args, 2 do
        local score, member = assert(tonumber(args[i])), args[i + 1]

        if not (nx and set.scores[member]) then
            added = added + 1 - zset_remove(set, member)
            zset_insert(set, member, score)
        end
    end

    store[key] = set

    return added
end

function commands.ZREM(key, ...)
    local set, removed = zset(key), 0

    assert(select('#', ...) > 0, 'ZREM arguments')

    for _, member in ipairs({ ... }) do
        removed = removed + zset_remove(set, member)
    end

    zset_trim(key, set)

    return removed
end

function commands.ZCARD(key)
    return #zset(key).order
end

function commands.ZSCORE(key, member)
    local score = zset(key).scores[member]

    return score and string.format('%.17g', score) or false
end

function commands.ZCOUNT(key, min, max)
    return #zset_range(zset(key), min, max)
end

function commands.ZRANGEBYSCORE(key, min, max)
    return zset_range(zset(key), min, max)
end

function commands.ZREMRANGEBYSCORE(key, min, max)
    local set = zset(key)
    local members = zset_range(set, min, max)

    for _, member in ipairs(members) do
        zset_remove(set, member)
    end

    zset_trim(key, set)

    return #members
end

function commands.ZRANGE(key, start, stop, scores)
    local set, range = zset(key), {}
    local first, last = assert(tonumber(start)), assert(tonumber(stop))

    assert((not scores or scores == 'WITHSCORES') and first % 1 == 0 and last % 1 == 0)

    first = first < 0 and math.max(first + #set.order, 0) or first
    last = last < 0 and last + #set.order or last

    for i = first, math.min(last, #set.order - 1) do
        local member = set.order[i + 1]
        range[#range + 1] = member

        if scores then
            range[#range + 1] = string.format('%.17g', set.scores[member])
        end
    end

    return range
end

function commands.PTTL(key)
    if not alive(key) then
        return -2
    end

    return expires_ms[key] and expires_ms[key] - math.floor(now_us / 1000)
           or -1
end

function commands.PEXPIRE(key, ms)
    assert(ms:match('^%d+$'), 'PEXPIRE takes an integer')

    if alive(key) then
        expires_ms[key] = math.floor(now_us / 1000) + tonumber(ms)
    end
end

function redis.call(name, ...)
    local args = { ... }

    for i = 1, select('#', ...) do

        -- of a number Redis 7.2 may make "1e+08", which is no integer to it

        assert(type(args[i]) == 'string', 'an argument of ' .. name)
    end

    local known = name == 'TIME'

    for _, key in ipairs(KEYS) do
        known = known or args[1] == key
    end

    assert(known, 'a key not in KEYS')
    calls[name] = (calls[name] or 0) + 1

    return commands[name](unpack(args))
end

function redis.error_reply(text)
    return { err = text }
end

-- ">In" items only: big-endian, unsigned, n bytes

function struct.pack(format, ...)
    local bytes, at = {}, 0

    assert(format:sub(1, 1) == '>')

    for size in format:gmatch('I(%d)') do
        at = at + 1

        local value = select(at, ...)
        assert(value >= 0 and value % 1 == 0 and value < 256 ^ size,
               'packed value ' .. value)

        for i = size - 1, 0, -1 do
            bytes[#bytes + 1] =
                string.char(math.floor(value / 256 ^ i) % 256)
        end
    end

    return table.concat(bytes)
end

function struct.unpack(format, text)
    local values, at = {}, 1

    assert(format:sub(1, 1) == '>')

    for size in format:gmatch('I(%d)') do
        local value = 0

        for _ = 1, size do
            value = value * 256 + text:byte(at)
            at = at + 1
        end

        values[#values + 1] = value
    end

    return unpack(values)
end

-- The key has a TTL, and no counter in it is fresh later than that, nor in the
-- same minute.

local function check_ttls(key)
    assert(expires_ms[key], 'a key without TTL')

    for _, state in pairs(store[key]) do
        local fresh_us = struct.unpack('>I7', state)

        assert(fresh_us - fresh_us % 60000000 + 60000000
               <= expires_ms[key] * 1000, 'a TTL shorter than a counter')
    end
end

-- The same of a set. How long a log's members are of use only the test knows.

local function check_set_ttl(key)
    local set = store[key]

    if set then
        assert(expires_ms[key], 'a set without TTL')
        assert(set.scores[set.order[#set.order]] <= expires_ms[key] * 1000,
               'a TTL shorter than a lease')
    end
end

local function check_calls()
    local sets = math.max(#KEYS - 1, 0)

    -- a denial looks at the sets before it once more

    for name, most in pairs({ HGET = 1, HMGET = 1, TIME = 1, HSET = 1,
                              PTTL = 1 + 2 * sets, PEXPIRE = 1 + sets,
                              HLEN = 1, HSCAN = 1 })
    do
        assert((calls[name] or 0) <= most, name .. ' called too often')
    end
end

setmetatable(_G, { __newindex = function(_, name)
    error('script makes a global ' .. name)
end })

local model = { totals = {} }

function model.run(script, at_us, keys, args)
    now_us, KEYS, ARGV, calls = at_us, keys, args, {}

    local ok, answer = pcall(script)

    if not ok then
        return { err = answer }
    end

    check_calls()

    if calls.HSET then
        check_ttls(keys[1])
    end

    for i = 2, #keys do
        check_set_ttl(keys[i])
    end

    for name, count in pairs(calls) do
        model.totals[name] = (model.totals[name] or 0) + count
    end

    return answer
end

function model.exists(at_us, key, field)
    now_us = at_us

    return (alive(key) or {})[field] ~= nil
end

-- As the script leaves a value: the key outlives its minute.

function model.put(key, field, value)
    local fresh_us = #value < 7 and 0 or struct.unpack('>I7', value)

    store[key] = alive(key) or {}
    store[key][field] = value
    expires_ms[key] = math.max(math.floor(now_us / 1000) + 1000,
                               math.floor(fresh_us / 60000000 + 1) * 60000,
                               expires_ms[key] or 0)
end

function model.value(key, field)
    return store[key][field]
end

-- Milliseconds that a key goes on to live, or -2.

function model.pttl(at_us, key)
    now_us = at_us

    return commands.PTTL(key)
end

function model.card(key)
    return commands.ZCARD(key)
end

function model.length(key)
    return commands.HLEN(key)
end

function model.flush()
    store, expires_ms, model.totals = {}, {}, {}
end

function model.total(name)
    return model.totals[name] or 0
end

return model
