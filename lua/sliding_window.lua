-- One sliding window: ngx_rl_window.c, the same decisions.
--
-- state: 17 bytes (7 fresh_us, 4 count, 2 code, 4 before), anything else is
-- fresh. a: window_us.

-- include span_encode.lua

local window_ms = a / 1000
window_ms = window_ms + -window_ms % 1

local end_us = now - now % a + a

-- The share of a window's count that still counts left_us before the end.

local function decay(count, left_us, window_us)
    local left_ms, window_ms = left_us / 1000, window_us / 1000

    left_ms = left_ms + -left_ms % 1
    window_ms = window_ms + -window_ms % 1

    if left_ms >= window_ms then
        return count
    end

    count = count * left_ms / window_ms

    return count + -count % 1
end

-- at most what has an exact weight: the capacity and more

local most = 9007199254740992 / window_ms
most = most < 2147483648 and most - most % 1 or 2147483648

-- settle: what is used

local count, before, changed = 0, 0, false

if state and #state == 17 then
    local old_fresh, old_count, old_code, old_before
        = unpack_state('>I7I4I2I4', state)
    local left_us = old_fresh - now

    if old_code ~= 0 then
        was_us = old_fresh
    end

    if old_code == 0 or left_us <= 0 then
        count = 0

    elseif old_code ~= code or old_fresh % a > 0 then
        -- include span_decode.lua

        if old_us > 31622400000000 then

            -- no sliding window's

            count = old_count + old_before

        elseif left_us <= old_us then
            count = decay(old_count, left_us, old_us)

        else
            count = old_count + decay(old_before, left_us - old_us, old_us)
        end

        changed = true

    elseif left_us <= a then
        end_us, before = old_fresh, old_count

    else
        count, before = old_count, old_before

        if left_us <= 2 * a + 1000000 then
            end_us = old_fresh - a
        else
            changed = true
        end
    end

    count = count < most and count or most
    before = before < most and before or most
end

-- give; want is for how many milliseconds it was taken, or -1

if cost < 0 and change then
    local taken_us = now - want * 1000
    local more = -cost - count

    if want == -1 and more > 0 and before > 0 then

        -- the window before weighs so much less

        local left_ms = (end_us - now) / 1000
        left_ms = left_ms + -left_ms % 1
        left_ms = left_ms < window_ms and left_ms or window_ms

        local weight = decay(before, end_us - now, a) - more
        weight = weight > 0 and weight * window_ms / left_ms or 0
        count, before, changed = 0, weight - weight % 1, true

    elseif taken_us >= now or taken_us + a >= end_us then

        if count > 0 then
            count = count + cost
            count = count > 0 and count or 0
            changed = true
        end

    elseif taken_us + 2 * a >= end_us and before > 0 then
        before = before + cost
        before = before > 0 and before or 0
        changed = true
    end
end

-- take

local used = before > 0 and count + decay(before, end_us - now, a) or count

left = used < capacity and capacity - used or 0

if want < -1 then
    if change and used < 2 * capacity then
        granted = math.min(-1 - want, 2 * capacity - used, most - count)
    end

elseif cost > capacity then
    retry_us = -1

elseif cost > left then
    local room, of, fits_us = capacity - cost - count, before, end_us

    if room < 0 then
        room, of, fits_us = capacity - cost, count, end_us + a
    end

    local fits_ms = room * window_ms / of

    retry_us = fits_us - (fits_ms - fits_ms % 1) * 1000 - now

elseif change and cost >= 0 then
    -- include grant.lua
end

if granted > 0 then
    count = count + granted
    left = left > granted and left - granted or 0
    changed = true
end

-- where this window has used nothing, the state is that of the one before

if count > 0 then
    fresh_us = end_us + a

elseif before > 0 then
    fresh_us, count, before = end_us, before, 0
end

reset_us = fresh_us > 0 and fresh_us - now or 0

if changed then
    span_us = 2 * a
    new = pack('>I7I4I2I4', fresh_us, count, fresh_us > 0 and code or 0, before)
end
