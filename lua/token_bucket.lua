-- One token bucket as GCRA: the arithmetic of
-- ngx_ratelimit_token_bucket.c, step by step, and the same decisions.
--
-- state: 12 bytes (7 tat_us, 3 tat_frac, 2 span_code), anything else is fresh.
-- charge false: look whether the cost could be paid, take nothing.
-- want below -1: -1 - want tokens have been spent and are taken in any case.
--
-- Returns granted, remaining, reset_us, retry_us (-1: never), the new state or
-- false where it stays as it is, and the span in microseconds.

local token_bucket = (has.t or has.T) and function(
        state, now, cost, want, capacity, period, scale, charge)
    local step_frac = period % scale
    local step_us = (period - step_frac) / scale

    local frac = capacity * step_frac
    local span_frac = frac % scale
    local span_us = capacity * step_us + (frac - span_frac) / scale

    local code = span_us > 0 and span_us or 1

    if span_us >= 64 then
        local mantissa, exponent = frexp(span_us)
        mantissa = mantissa * 128
        code = exponent * 64 + mantissa - mantissa % 1 - 448
    end

    -- settle: what is used

    local used_us, used_frac, changed = 0, 0, false
    local most_us = 2 * span_us + 2

    if state and #state == 12 then
        local tat_us, tat_frac, tat_code = unpack_state('>I7I3I2', state)

        if tat_code ~= 0 and tat_us >= now then
            used_us, used_frac = tat_us - now, tat_frac

            if tat_code ~= code then
                local old = tat_code

                if old >= 64 then
                    old = tat_code % 64
                    old = (64 + old) * 2 ^ ((tat_code - old) / 64 - 1)
                end

                if used_frac > 0 then
                    used_us, used_frac = used_us + 1, 0
                end

                used_us = used_us * span_us / old

                if used_us > most_us then
                    used_us = most_us
                elseif used_us > span_us - 1 and used_us <= span_us * 1.015625
                then
                    used_us, used_frac = span_us, span_frac
                else
                    used_us = used_us + -used_us % 1
                end

                changed = true

            else
                if used_frac >= scale then
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

    if cost < 0 and charge and want * 1000 <= span_us
       and (used_us > 0 or used_frac > 0)
    then
        cost = -cost < capacity and cost or -capacity

        frac = cost * step_frac
        used_us = used_us + cost * step_us + (frac - frac % scale) / scale
        used_frac = used_frac + frac % scale

        if used_frac >= scale then
            used_us, used_frac = used_us + 1, used_frac - scale
        end

        if used_us < 0 then
            used_us, used_frac = 0, 0
        end

        changed = true
    end

    -- left: the greatest number of tokens that fits in what is not used

    local left = capacity

    if used_us > 0 or used_frac > 0 then
        local left_us, left_frac = span_us - used_us, span_frac - used_frac

        if left_frac < 0 then
            left_us, left_frac = left_us - 1, left_frac + scale
        end

        if left_us < 0 then
            left = 0

        else
            local x = left_us * scale + left_frac
            left = x / period
            left = left - left % 1

            -- above 2^53 x is rounded, and the quotient may be one off

            if x >= 9007199254740992 then
                frac = left * step_frac
                local us = left * step_us + (frac - frac % scale) / scale

                if us > left_us or us == left_us and frac % scale > left_frac
                then
                    left = left - 1

                else
                    frac = frac + step_frac
                    us = (left + 1) * step_us + (frac - frac % scale) / scale

                    if us < left_us
                       or us == left_us and frac % scale <= left_frac
                    then
                        left = left + 1
                    end
                end
            end
        end
    end

    -- take

    local granted, retry_us = 0, 0

    if want < -1 then
        granted = charge and math.min(-1 - want, 2 * capacity) or 0

    elseif cost > capacity then
        retry_us = -1

    elseif cost > left then
        frac = cost * step_frac

        local over = frac % scale
        retry_us = cost * step_us + (frac - over) / scale + used_us - span_us
        over = over + used_frac - span_frac
        retry_us = retry_us + (over > scale and 2 or over > 0 and 1 or 0)

    elseif charge and cost >= 0 then
        granted = want <= cost and cost or want < left and want or left
    end

    if granted > 0 then
        frac = granted * step_frac
        used_us = used_us + granted * step_us + (frac - frac % scale) / scale
        used_frac = used_frac + frac % scale

        if used_frac >= scale then
            used_us, used_frac = used_us + 1, used_frac - scale
        end

        left = left > granted and left - granted or 0
        changed = true

        if used_us > most_us then
            used_us, used_frac = most_us, 0
        end
    end

    return granted, left, used_frac > 0 and used_us + 1 or used_us, retry_us,
           changed and pack('>I7I3I2', now + used_us, used_frac, code),
           span_us
end
