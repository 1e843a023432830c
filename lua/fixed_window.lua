-- One fixed window: src/core/ngx_ratelimit_window.c, the same decisions.
--
-- state: 13 bytes (7 fresh_us, 4 count, 2 code), anything else is fresh.
-- calendar: 0 for multiples of window_us, 1 for UTC days, 2 for months.
-- charge false: look whether the cost could be paid, take nothing.
--
-- Returns granted, remaining, reset_us, retry_us (-1: never), the new state or
-- false where it stays as it is, and how long a state is of use.

local function fixed_window(state, now, cost, want, capacity, window_us,
                            calendar, charge)
    error('not there')
end
