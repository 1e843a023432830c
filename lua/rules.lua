-- The document of one zone: which version is current, and those before it. A
-- script of its own: it is called seldom, and sent with its text.
--
-- KEYS[1], a hash: version, id, record, resets; bytes, of all the history;
--     heads, the first line of each record, so that a list reads no document
-- KEYS[2], a list: the records that were current before, the newest first; not
--     for "get"
-- ARGV[1], what to do; answers are texts, versions and ids "0" where there is
-- no record
--
--     get version id: {version, id, resets}, and the record, where that is
--         another one than the caller's
--     put expected expected_id version id record: {"1", version, id}; or {"0",
--         version, id} of what is there and was not expected. The first one,
--         and the answer of a reset, end with an error if it was not announced.
--         A record that is there gets the seal of this one
--     list: {the first lines of all records, the current one first}
--     version n: {that record}, or {}
--     reset: {resets}: the microsecond of the last reset, so that no two are
--         the same, also where Redis has lost the one before
--
-- A put and a reset are announced by a message on "<prefix>:rules:<zone>";
-- KEYS[1] is "<prefix>:{rules:<zone>}".
--
-- Behind the document of a record a line may stand, the record's seal.
--
-- A record above 1 MiB, which older gateways have written, is answered by its
-- head alone: its reader says then that it is too large.
--
-- A put is the one HSET at its end. What refuses to write, as a full Redis or
-- rights that are not there, does so before: then nothing is changed.

local call = redis.call

-- of the history
local MOST_RECORDS, MOST_BYTES = 50, 33554432

-- of a record: a document of 1 MiB, a head, and a seal
local LARGEST = 1064960 + 77

local function head(record)
    return record:sub(1, (record:find('\n', 1, true) or 0) - 1)
end

local function bounded(record)
    return #record > LARGEST and head(record) .. '\n' or record
end

-- "heads" begins with a line that names the current record and the length of
-- the history: it is of no use where a gateway that does not keep it has
-- written since.

local function state(version, id, n)
    return version .. ' ' .. id .. ' ' .. n
end

-- The lines of "heads", or nil; and whether there is a current record.

local function stored()
    local found = call('HMGET', KEYS[1], 'version', 'id', 'heads')
    local expected = state(found[1] or '0', found[2] or '0',
                           call('LLEN', KEYS[2]))
    local lines, first = {}, nil

    for line in (found[3] or ''):gmatch('([^\n]*)\n') do
        if first then
            lines[#lines + 1] = line
        end

        first = first or line
    end

    return first == expected and lines or nil, found[1]
end

-- The first lines of the history, behind those that there are.

local function read(lines)
    for i = 1, call('LLEN', KEYS[2]) do
        lines[#lines + 1] = head(call('LINDEX', KEYS[2], i - 1))
    end

    return lines
end

local function text(version, id, n, lines)
    return state(version, id, n) .. '\n'
           .. table.concat(lines, '\n', 1, math.min(#lines, n + 1)) .. '\n'
end

-- A channel that the user may not publish on must not undo the change. Returns
-- the answer, and the error behind it.

local function publish(message, answer)
    local sent = redis.pcall('PUBLISH', (KEYS[1]:gsub('{(rules:.*)}$', '%1')),
                             message)

    answer[#answer + 1] = type(sent) == 'table' and sent.err or nil

    return answer
end

-- Puts a record into the history, of so many bytes; returns its bytes and its
-- length then.
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

    return bytes, n
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

    return {found[1], found[2], resets,
            bounded(call('HGET', KEYS[1], 'record') or '')}
end

-- A caller whose answer was lost says the same once more.

function operations.put(expected, expected_id, version, id, record)
    local found = call('HMGET', KEYS[1], 'version', 'id', 'bytes')
    local current, current_id = found[1] or '0', found[2] or '0'

    if current == version and current_id == id then
        if call('HGET', KEYS[1], 'record') == record then
            return {'1', version, id}
        end

        call('HSET', KEYS[1], 'record', record)

        return publish(version, {'1', version, id})
    end

    if current ~= expected or current_id ~= expected_id then
        return {'0', current, current_id}
    end

    local lines = stored()
    local former = call('HGET', KEYS[1], 'record')
    local bytes, n = found[3] or 0, call('LLEN', KEYS[2])

    if former then
        bytes, n = keep(former, tonumber(found[3]))
    end

    lines = lines or read({})
    table.insert(lines, 1, head(record))

    call('HSET', KEYS[1], 'version', version, 'id', id, 'record', record,
         'bytes', bytes, 'heads', text(version, id, n, lines))

    return publish(version, {'1', version, id})
end

-- The first lines of all records, and whether the first is the current one's.
-- Where they have to be read they are kept, if that is possible; not between
-- the two writes of a put, when the current record is in the history, too.

local function heads()
    local lines, current = stored()

    if lines then
        return lines, current
    end

    local record = call('HGET', KEYS[1], 'record')

    lines = read(record and {head(record)} or {})

    if record and call('LINDEX', KEYS[2], 0) ~= record then
        local found = call('HMGET', KEYS[1], 'version', 'id')

        redis.pcall('HSET', KEYS[1], 'heads',
                    text(found[1], found[2], #lines - 1, lines))
    end

    return lines, record
end

function operations.list()
    local lines = heads()

    return {table.concat(lines, '\n') .. '\n'}
end

-- Between the two writes of a put the history may be one record further on.

local function at(i, current, line)
    if current and i == 1 then
        return call('HGET', KEYS[1], 'record')
    end

    local record = call('LINDEX', KEYS[2], i - (current and 2 or 1))

    return head(record) == line and record
           or call('LINDEX', KEYS[2], i - (current and 1 or 0))
end

function operations.version(version)
    local lines, current = heads()

    for i, line in ipairs(lines) do
        if line:match('"version":(%d+)') == version then
            return {bounded(at(i, current, line))}
        end
    end

    return {}
end

-- Gateways before this one count from 0, or on from where they find it.

function operations.reset()
    local former = tonumber(call('HGET', KEYS[1], 'resets') or '') or 0
    local now = call('TIME')
    local resets = string.format('%.0f', math.max(now[1] * 1000000 + now[2],
                                                  former + 1))

    call('HSET', KEYS[1], 'resets', resets)

    return publish('reset', {resets})
end

local operation = operations[ARGV[1]]

if not operation then
    return redis.error_reply('ERR ratelimit: malformed argument')
end

return operation(unpack(ARGV, 2))
