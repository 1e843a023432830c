-- The other peer: no request asks Redis. A window is counted in a dictionary
-- that the workers share, and each worker adds what it has counted to Redis ten
-- times a second, in pipelines. Between two flushes the nodes know nothing of
-- each other.
--
-- Written to be fast: the dictionary forgets a key when its window ends, so a
-- request makes no string but its headers; a key costs Redis one INCRBY a flush,
-- and an EXPIRE in its first.

local redis = require "nginx.redis"

local floor, next, pairs = math.floor, next, pairs
local now = ngx.now

local _M = {}
local mt = { __index = _M }

-- as much in a window as the capacity of the other variants

local LIMIT, WINDOW_S = 1000000000, 60
local FLUSH_S, AT_ONCE = 0.1, 1000
local TIMEOUT_MS, IDLE_MS, POOL = 1000, 60000, 4

-- used: of each key in this window, of all nodes, as far as this one knows.
-- total: what Redis said last. counts: not flushed yet, by the window's end.

function _M.new(host, port)
    return setmetatable({ host = host, port = port, used = ngx.shared.used,
                          total = ngx.shared.total, counts = {} }, mt)
end

-- What the others have added is what the total has grown by, less what is ours.

local function learn(self, keys, names, totals, left_s)
    local new = {}

    for i = 1, #names do
        local key, total = names[i], totals[i]
        local ours = keys[key]

        if type(total) ~= "number" then
            return nil, "unexpected reply"
        end

        local theirs = total - ours - (self.total:get(key) or 0)

        if theirs ~= 0 then
            self.used:incr(key, theirs, 0, left_s)
        end

        self.total:set(key, total, left_s)
        keys[key] = nil

        if total == ours then
            new[#new + 1] = key
        end
    end

    return new
end

local function add(self, red, ends, keys, names)
    red:init_pipeline(#names)

    for i = 1, #names do
        red:incrby("rl:" .. ends .. ":" .. names[i], keys[names[i]])
    end

    local totals, err = red:commit_pipeline()
    if not totals then
        return nil, err
    end

    local left_s = ends - now()
    if left_s <= 0 then
        left_s = 0.001
    end

    local new
    new, err = learn(self, keys, names, totals, left_s)
    if not new then
        return nil, err
    end

    if #new == 0 then
        return true
    end

    red:init_pipeline(#new)

    for i = 1, #new do
        red:expire("rl:" .. ends .. ":" .. new[i], 2 * WINDOW_S)
    end

    return red:commit_pipeline()
end

local function flush_window(self, ends, keys)
    local red = redis:new()
    red:set_timeout(TIMEOUT_MS)

    local ok, err = red:connect(self.host, self.port)

    while ok and next(keys) ~= nil do
        local names, n = {}, 0

        for key in pairs(keys) do
            n = n + 1
            names[n] = key

            if n == AT_ONCE then
                break
            end
        end

        ok, err = add(self, red, ends, keys, names)
    end

    if not ok then
        red:close()
        return nil, err
    end

    red:set_keepalive(IDLE_MS, POOL)

    return true
end

local function flush(self)
    local counts = self.counts
    self.counts = {}

    for ends, keys in pairs(counts) do
        local ok, err = flush_window(self, ends, keys)

        if not ok then
            ngx.log(ngx.ERR, "redis failed: ", err)

            -- what was not added is added by the next flush

            local since = self.counts[ends] or {}
            self.counts[ends] = since

            for key, n in pairs(keys) do
                since[key] = (since[key] or 0) + n
            end
        end
    end
end

-- In each worker; a flush that takes longer than its turn skips the next.

function _M.start(self)
    ngx.timer.every(FLUSH_S, function ()
        if self.flushing or next(self.counts) == nil then
            return
        end

        self.flushing = true
        local ok, err = pcall(flush, self)
        self.flushing = false

        if not ok then
            ngx.log(ngx.ERR, "flush failed: ", err)
        end
    end)
end

function _M.check(self)
    local key = ngx.var.http_x_api_key or ""
    local time = now()
    local ends = (floor(time / WINDOW_S) + 1) * WINDOW_S

    local used, err = self.used:incr(key, 1, 0, ends - time)

    if not used then
        ngx.log(ngx.ERR, "no room: ", err)
        return
    end

    local header = ngx.header
    header["X-RateLimit-Limit"] = LIMIT
    header["X-RateLimit-Remaining"] = used < LIMIT and LIMIT - used or 0
    header["X-RateLimit-Reset"] = ends

    if used > LIMIT then
        self.used:incr(key, -1)
        header["Retry-After"] = ends - floor(time)
        return ngx.exit(429)
    end

    local keys = self.counts[ends]

    if not keys then
        keys = {}
        self.counts[ends] = keys
    end

    keys[key] = (keys[key] or 0) + 1
end

return _M
