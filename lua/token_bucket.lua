-- One token bucket as GCRA: the same decisions as
-- ngx_rl_token_bucket.c, which compares times where this divides.
--
-- state: 12 bytes (7 tat_us, 3 tat_frac, 2 span_code), anything else is fresh.
-- a, b: period_us, scale.

local step_frac = a % b
local step_us = (a - step_frac) / b

local frac = capacity * step_frac
local span_frac = frac % b

span_us = capacity * step_us + (frac - span_frac) / b

-- include span_encode.lua

-- settle: what is used

local used_us, used_frac, changed = 0, 0, false
local most_us = 2 * span_us + 2

if state and #state == 12 then
    local tat_us, tat_frac, old_code = unpack_state('>I7I3I2', state)

    if old_code ~= 0 then
        was_us = tat_us
    end

    if old_code ~= 0 and tat_us >= now then
        used_us, used_frac = tat_us - now, tat_frac

        if old_code ~= code then
            -- include span_decode.lua

            if used_frac > 0 then
                used_us, used_frac = used_us + 1, 0
            end

            used_us = used_us * span_us / old_us

            if used_us > most_us then
                used_us = most_us
            elseif used_us > span_us - 1 and used_us <= span_us * 1.015625 then
                used_us, used_frac = span_us, span_frac
            else
                used_us = used_us + -used_us % 1
            end

            changed = true

        else
            if used_frac >= b then
                used_us, used_frac = used_us + 1, 0
            end

            if used_us > most_us + 1000000 then
                used_us, used_frac = span_us, span_frac
                changed = true
            end
        end
    end
end

-- give; want is for how many milliseconds it was taken

if cost < 0 and change and want * 1000 <= span_us
   and (used_us > 0 or used_frac > 0)
then
    cost = -cost < capacity and cost or -capacity

    frac = cost * step_frac
    used_us = used_us + cost * step_us + (frac - frac % b) / b
    used_frac = used_frac + frac % b

    if used_frac >= b then
        used_us, used_frac = used_us + 1, used_frac - b
    end

    if used_us < 0 then
        used_us, used_frac = 0, 0
    end

    changed = true
end

-- left: the greatest number of tokens that fits in what is not used

left = capacity

if used_us > 0 or used_frac > 0 then
    local left_us, left_frac = span_us - used_us, span_frac - used_frac

    if left_frac < 0 then
        left_us, left_frac = left_us - 1, left_frac + b
    end

    if left_us < 0 then
        left = 0

    else
        local x = left_us * b + left_frac
        left = x / a
        left = left - left % 1

        -- above 2^53 x is rounded, and the quotient may be one off

        if x >= 9007199254740992 then
            frac = left * step_frac
            local us = left * step_us + (frac - frac % b) / b

            if us > left_us or us == left_us and frac % b > left_frac then
                left = left - 1

            else
                frac = frac + step_frac
                us = (left + 1) * step_us + (frac - frac % b) / b

                if us < left_us or us == left_us and frac % b <= left_frac then
                    left = left + 1
                end
            end
        end
    end
end

-- take

if keep then
    left = left > keep and left - keep or 0
end

if want < -1 then
    granted = change and math.min(-1 - want, 2 * capacity) or 0

elseif cost > left then
    local need = cost + (keep or 0)

    if need > capacity then
        retry_us = -1

    else
        frac = need * step_frac

        local over = frac % b
        retry_us = need * step_us + (frac - over) / b + used_us - span_us
        over = over + used_frac - span_frac
        retry_us = retry_us + (over > b and 2 or over > 0 and 1 or 0)
    end

elseif change and cost >= 0 then
    -- include grant.lua
end

if granted > 0 then
    frac = granted * step_frac
    used_us = used_us + granted * step_us + (frac - frac % b) / b
    used_frac = used_frac + frac % b

    if used_frac >= b then
        used_us, used_frac = used_us + 1, used_frac - b
    end

    left = left > granted and left - granted or 0
    changed = true

    if used_us > most_us then
        used_us, used_frac = most_us, 0
    end
end

reset_us = used_frac > 0 and used_us + 1 or used_us

if changed then
    fresh_us = now + used_us
    new = pack('>I7I3I2', fresh_us, used_frac, code)
end
