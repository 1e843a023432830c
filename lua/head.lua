-- What the script's parts share. tools/embed-lua.sh joins them in the order of
-- config.make; each is a local function, and check.lua calls them.

local frexp, pack, unpack_state = math.frexp, struct.pack, struct.unpack
local format = string.format

-- A sorted set's clock was set back: members above a score get another one.

local function pull_back(key, above, score)
    local members = redis.call('ZRANGEBYSCORE', key, '(' .. above, '+inf')

    -- unpack has a limit

    for i = 1, #members, 1000 do
        local batch = {}

        for j = i, math.min(i + 999, #members) do
            batch[#batch + 1] = score
            batch[#batch + 1] = members[j]
        end

        redis.call('ZADD', key, unpack(batch))
    end
end
