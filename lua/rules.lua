-- The document of one zone: which version is current, and those before it. A
-- script of its own: it is called seldom, and sent with its text.
--
-- KEYS[1], a hash: version, id, record, resets; bytes, of all the history
-- KEYS[2], a list: the records that were current before, the newest first
-- ARGV[1], what to do; answers are texts, versions "0" where there is none
--
--     get version id: {version, id, resets}, and the record's pieces where the
--         caller, who has that version and id, has another one
--     put expected version id record channel message: {"1", version, id}; or
--         {"0", version, id} of what is there and was not expected
--     list: the first line of each record, the current one first
--     version n: the pieces of that record, or {}
--     reset channel message: {resets}: the microsecond of the last reset, so
--         that no two are the same, also where Redis has lost the one before
--
-- A record comes in pieces: who reads it has others to serve meanwhile.
--
-- A put is the one HSET at its end. What refuses to write, as a full Redis or
-- rights that are not there, does so before: then nothing is changed.

local call = redis.call

-- of the history
local MOST_RECORDS, MOST_BYTES = 50, 33554432

local PIECE = 524288

local function cut(record, answer)
    for i = 1, #record, PIECE do
        answer[#answer + 1] = record:sub(i, i + PIECE - 1)
    end

    return answer
end

local function head(record)
    return record:sub(1, (record:find('\n', 1, true) or 0) - 1)
end

-- A channel that the user may not publish on must not undo the change.

local function publish(channel, message)
    redis.pcall('PUBLISH', channel, message)
end

-- Puts a record into the history, of so many bytes; returns its bytes then.
-- What others did to the list is made up for when it is empty again. A record
-- that is there was left by a put that was refused the rest.

local function keep(record, bytes)
    local there = call('LINDEX', KEYS[2], 0) == record
    local n = there and call('LLEN', KEYS[2]) or call('LPUSH', KEYS[2], record)

    if bytes and n > 1 and not there then
        bytes = bytes + #record

    else
        bytes = 0

        for i = 1, n do
            bytes = bytes + #call('LINDEX', KEYS[2], i - 1)
        end
    end

    while n > 0 and (n > MOST_RECORDS or bytes > MOST_BYTES) do
        bytes = bytes - #call('RPOP', KEYS[2])
        n = n - 1
    end

    return bytes
end

local operations = {}

function operations.get(version, id)
    local found = call('HMGET', KEYS[1], 'version', 'id', 'resets')
    local resets = found[3] or '0'

    if not found[1] then
        return {'0', '0', resets}
    end

    if found[1] == version and found[2] == id then
        return {version, id, resets}
    end

    return cut(call('HGET', KEYS[1], 'record') or '',
               {found[1], found[2], resets})
end

-- A caller whose answer was lost says the same once more.

function operations.put(expected, version, id, record, channel, message)
    local found = call('HMGET', KEYS[1], 'version', 'id', 'bytes')
    local current, current_id = found[1] or '0', found[2] or '0'

    if current == version and current_id == id then
        return {'1', version, id}
    end

    if current ~= expected then
        return {'0', current, current_id}
    end

    local former = call('HGET', KEYS[1], 'record')
    local bytes = former and keep(former, tonumber(found[3])) or found[3] or 0

    call('HSET', KEYS[1], 'version', version, 'id', id, 'record', record,
         'bytes', bytes)

    publish(channel, message)

    return {'1', version, id}
end

-- The first of the records, the current one and the history, that is found.

local function walk(is_found)
    local record = call('HGET', KEYS[1], 'record')

    if record and is_found(record) then
        return cut(record, {})
    end

    for i = 1, call('LLEN', KEYS[2]) do
        record = call('LINDEX', KEYS[2], i - 1)

        if is_found(record) then
            return cut(record, {})
        end
    end

    return {}
end

function operations.list()
    local heads = {}

    walk(function(record)
        heads[#heads + 1] = head(record)
    end)

    return heads
end

function operations.version(version)
    return walk(function(record)
        return head(record):match('"version":(%d+)') == version
    end)
end

-- Gateways before this one count from 0, or on from where they find it.

function operations.reset(channel, message)
    local former = tonumber(call('HGET', KEYS[1], 'resets') or '') or 0
    local now = call('TIME')
    local resets = string.format('%.0f', math.max(now[1] * 1000000 + now[2],
                                                  former + 1))

    call('HSET', KEYS[1], 'resets', resets)
    publish(channel, message)

    return {resets}
end

local operation = operations[ARGV[1]]

if not operation then
    return redis.error_reply('ERR ratelimit: malformed argument')
end

return operation(unpack(ARGV, 2))
