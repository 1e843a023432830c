-- The span of a state's code: ngx_rl_span_decode().

local old_us = old_code

if old_code >= 64 then
    old_us = old_code % 64
    old_us = (64 + old_us) * 2 ^ ((old_code - old_us) / 64 - 1)
end
