-- The peer: a token bucket on Redis from access_by_lua, written to be fast.
-- GCRA: one GET and one SET, the fewest commands that keep a bucket; the digest
-- is computed once; connections come from a pool larger than the load's.

local redis = require "nginx.redis"

local script = [[
local capacity, token_us = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local tat = tonumber(redis.call('GET', KEYS[1])) or now

if tat < now then
    tat = now
end

local used = tat + token_us - now
local over = used - capacity * token_us

if over > 0 then
    return {0, 0, math.ceil((tat - now) / 1000), math.ceil(over / 1000)}
end

redis.call('SET', KEYS[1], now + used, 'PX', math.ceil(used / 1000))

return {1, math.floor(capacity - used / token_us), math.ceil(used / 1000), 0}
]]

local _M = {}
local mt = { __index = _M }

-- 100 requests a minute, with the capacity of the other variants

local CAPACITY, TOKEN_US = "1000000000", "600000"
local TIMEOUT_MS, IDLE_MS, POOL = 1000, 60000, 256

function _M.new(host, port)
    local hex = ngx.sha1_bin(script):gsub(".", function (c)
        return string.format("%02x", c:byte())
    end)

    return setmetatable({ host = host, port = port, sha = hex }, mt)
end

local function ask(self, key)
    local red = redis:new()
    red:set_timeout(TIMEOUT_MS)

    local ok, err = red:connect(self.host, self.port)
    if not ok then
        return nil, err
    end

    local res
    res, err = red:evalsha(self.sha, 1, key, CAPACITY, TOKEN_US)

    if not res and err and err:sub(1, 8) == "NOSCRIPT" then
        res, err = red:eval(script, 1, key, CAPACITY, TOKEN_US)
    end

    if not res then
        red:close()
        return nil, err
    end

    red:set_keepalive(IDLE_MS, POOL)

    return res
end

function _M.check(self)
    local res, err = ask(self, "rl:" .. (ngx.var.http_x_api_key or ""))

    if not res then
        ngx.log(ngx.ERR, "redis failed: ", err)
        return
    end

    local header = ngx.header
    header["X-RateLimit-Limit"] = CAPACITY
    header["X-RateLimit-Remaining"] = res[2]
    header["X-RateLimit-Reset"] = ngx.time() + math.ceil(res[3] / 1000)

    if res[1] == 0 then
        header["Retry-After"] = math.ceil(res[4] / 1000)
        return ngx.exit(429)
    end
end

return _M
