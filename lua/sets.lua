-- A sorted set's clock was set back: members above a score get another one.

local format = string.format

local function pull_back(key, above, score)
    local members = call('ZRANGEBYSCORE', key, '(' .. above, '+inf')

    -- unpack has a limit

    for i = 1, #members, 1000 do
        local batch = {}

        for j = i, math.min(i + 999, #members) do
            batch[#batch + 1] = score
            batch[#batch + 1] = members[j]
        end

        call('ZADD', key, unpack(batch))
    end
end
