/* Any text as a rate, a number and a name. */

#include <stdlib.h>

#include "ngx_rl_text.h"
#include "ngx_rl_token_bucket.h"

#define must(condition)  do { if (!(condition)) abort(); } while (0)


static void
fuzz_rate(const u_char *text, size_t len)
{
    uint64_t       tokens, period_us;
    const char    *err;
    ngx_rl_rate_t  rate;

    tokens = 0;
    period_us = 0;

    err = ngx_rl_rate_parse(text, len, &tokens, &period_us);

    if (err) {
        must(err[0] != '\0' && tokens == 0 && period_us == 0);
        return;
    }

    must(period_us % 1000000 == 0);
    must(tokens == 0 || ngx_rl_rate_init(&rate, tokens, period_us, 1) == 0);
}


static void
fuzz_number(const u_char *text, size_t len)
{
    u_char    out[20], *end;
    uint64_t  value;

    if (ngx_rl_number_parse(text, len, 0, UINT64_MAX, &value) != 0) {
        return;
    }

    while (len > 1 && *text == '0') {
        text++;
        len--;
    }

    end = ngx_rl_number_write(out, value);
    must((size_t) (end - out) == len && memcmp(out, text, len) == 0);
    must(ngx_rl_number_parse(text, len, 0, value, &value) == 0);
    must(value == 0
         || ngx_rl_number_parse(text, len, 0, value - 1, &value) == -1);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_rate(data, size);
    fuzz_number(data, size);

    must(!ngx_rl_name_valid(data, size) || size <= 64);

    return 0;
}
