-- One sliding window: src/core/ngx_ratelimit_window.c, the same decisions.
--
-- state: 17 bytes (7 fresh_us, 4 count, 2 code, 4 before), anything else is
-- fresh.

local function sliding_window(state, now, cost, want, capacity, window_us, _,
                              charge)
    error('not there')
end
