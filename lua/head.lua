-- What the script's parts share. tools/embed-lua.sh joins them in the order of
-- config.make; each makes a local function, and check.lua calls them.
--
-- All numbers are integers below 2^53, which doubles hold exactly; of two such
-- x and y, x / y - x / y % 1 is the exact quotient, rounded down, and
-- x + -x % 1 is ceil(x) without a call.

local frexp, pack, unpack_state = math.frexp, struct.pack, struct.unpack
local format, call = string.format, redis.call

-- The kinds of the counters in this call. To make a function takes as long as
-- to call one, so those that no counter needs are not made.

local has = {}

for i = 1, #ARGV, 7 do
    has[ARGV[i]] = true
end

local windows = has.f or has.s or has.F or has.S
local hashed = has.t or has.T or windows
local sets = has.l or has.L or has.c or has.C

-- ngx_ratelimit_span_encode() and ngx_ratelimit_span_decode(); the bucket, which
-- is called the most often, has the same in place.

local span_encode = windows and function(span_us)
    if span_us < 64 then
        return span_us > 0 and span_us or 1
    end

    local mantissa, exponent = frexp(span_us)
    mantissa = mantissa * 128

    return exponent * 64 + mantissa - mantissa % 1 - 448
end

local span_decode = windows and function(code)
    if code < 64 then
        return code
    end

    local mantissa = code % 64

    return (64 + mantissa) * 2 ^ ((code - mantissa) / 64 - 1)
end

-- A sorted set's clock was set back: members above a score get another one.

local pull_back = sets and function(key, above, score)
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
