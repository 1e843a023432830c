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

function commands.HGETALL(key)
    local all = {}

    for field, value in pairs(alive(key) or {}) do
        all[#all + 1] = field
        all[#all + 1] = value
    end

    return all
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

    assert(name == 'TIME' or args[1] == KEYS[1], 'a key not in KEYS')
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

-- The key has a TTL, and no counter in it is fresh later than that.

local function check_ttls(key)
    assert(expires_ms[key], 'a key without TTL')

    for _, state in pairs(store[key]) do
        assert(struct.unpack('>I7', state) <= expires_ms[key] * 1000,
               'a TTL shorter than a counter')
    end
end

local function check_calls()
    for name, most in pairs({ HMGET = 1, TIME = 1, HSET = 1, PTTL = 1,
                              PEXPIRE = 1, HLEN = 1, HGETALL = 1 })
    do
        assert((calls[name] or 0) <= most, name .. ' called twice')
    end
end

setmetatable(_G, { __newindex = function(_, name)
    error('script makes a global ' .. name)
end })

local model = { totals = {} }

function model.run(script, at_us, keys, args)
    now_us, KEYS, ARGV, calls = at_us, keys, args, {}

    local answer = script()

    check_calls()

    if calls.HSET then
        check_ttls(keys[1])
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

function model.put(key, field, value)
    store[key] = alive(key) or {}
    store[key][field] = value
    expires_ms[key] = math.floor(now_us / 1000) + 1000
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
