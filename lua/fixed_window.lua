-- One fixed window: ngx_rl_window.c, the same decisions.
--
-- state: 13 bytes (7 fresh_us, 4 count, 2 code), anything else is fresh.
-- a, b: window_us, and 0 for multiples of it, or a calendar's number, which is
-- its code less 4000; then window_us is the longest that the calendar has.

-- include span_encode.lua

local start_us = now - now % a
local end_us, next_us = start_us + a, a

if b > 0 then
    local from, len, next_len = kind:match('(%d+)%+(%d+)%+(%d+)')

    code = 4000 + b
    start_us = from * 1000000
    end_us, next_us = start_us + len * 1000000, next_len * 1000000

    if now >= end_us then
        start_us = end_us
        end_us, next_us = end_us + next_us, a

        if now >= end_us then
            start_us = now - (now - end_us) % a
            end_us = start_us + a
        end

    elseif now < start_us then

        -- Redis' clock is behind the gateway's

        end_us = start_us - (start_us - now - 1) + (start_us - now - 1) % a
        start_us, next_us = end_us - a, len * 1000000
    end
end

-- settle: what is used

local count, changed, owes = 0, false, false

if state and #state == 13 then
    local old_end, old_count, old_code = unpack_state('>I7I4I2', state)

    if old_code ~= 0 then
        was_us = old_end
    end

    if old_code ~= 0 and old_end > now then
        count, owes, changed = old_count, old_code == 4003, true

        local owes_us = old_end - now

        if owes then
            old_end = old_end - a
        end

        if owes and (owes_us <= a or owes_us <= end_us - now + a / 2) then

            -- it is over: this window pays, or the one before has

            count = (count < capacity or owes_us + a / 2 < end_us - now)
                    and 0 or count - capacity
            owes = false

        elseif (owes or old_code == code) and old_end - now <= a + 1000000 then
            end_us, changed = old_end, false

            -- give; want is for how many milliseconds it was taken

            if cost < 0 and change then
                local taken_us = now - want * 1000

                if taken_us >= now
                   or taken_us >= start_us and taken_us >= old_end - a
                then
                    count = count + cost
                    count = count > 0 and count or 0
                    changed = true
                end
            end
        end
    end
end

-- take

left = count < capacity and capacity - count or 0

if want < -1 then
    if change and count < 2 * capacity then
        granted = math.min(-1 - want, 2 * capacity - count)
        owes = owes or count + granted > capacity
    end

elseif cost > capacity then
    retry_us = -1

elseif cost > left then
    retry_us = end_us - now

    if owes and count + cost > 2 * capacity then
        retry_us = retry_us + next_us
    end

elseif change and cost >= 0 then
    -- include grant.lua
end

if granted > 0 then
    count = count + granted
    left = left > granted and left - granted or 0
    changed = true
end

owes = owes and count > capacity
reset_us = count > 0 and end_us - now or 0

if changed then
    fresh_us = owes and end_us + a or count > 0 and end_us or 0
    span_us = owes and fresh_us - now or a
    new = pack('>I7I4I2', fresh_us, count,
               owes and 4003 or count > 0 and code or 0)
end
