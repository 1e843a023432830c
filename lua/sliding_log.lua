-- One sliding log as a sorted set: a member for each request in the window, its
-- score the instant. src/core/ngx_ratelimit_sliding_log.c decides the same.
--
-- name: what the request's members start with; gives back by it.
-- Returns granted, remaining, reset_us, retry_us (-1: never), and what is to be
-- done to the set: a function, or false.

local function sliding_log(key, now, cost, want, capacity, window_us, name,
                           charge)
    error('not there')
end
