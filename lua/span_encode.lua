-- The code of a span: ngx_rl_span_encode().

local code = span_us > 0 and span_us or 1

if span_us >= 64 then
    local mantissa, exponent = frexp(span_us)
    mantissa = mantissa * 128
    code = exponent * 64 + mantissa - mantissa % 1 - 448
end
