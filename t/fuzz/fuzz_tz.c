/* Any bytes as a time zone's file, and the clock that it makes. */

#include <stdlib.h>

#include "ngx_rl_date.h"

#define must(condition)  do { if (!(condition)) abort(); } while (0)

#define NOW  1800000000


/* Each change lies behind the one before; the offset holds until there. */
static void
fuzz_clock(const ngx_rl_tz_t *tz, int64_t when)
{
    int      i;
    int64_t  next, before, unused;
    int32_t  offset;

    for (i = 0; i < 100; i++) {
        offset = ngx_rl_tz_offset(tz, when, &next);
        must(offset >= -93600 * 2 && offset <= 93600 * 2);
        must(next > when);

        before = (next == NGX_RL_TZ_FOREVER) ? when + 1000 : next - 1;
        must(ngx_rl_tz_offset(tz, before, &unused) == offset);
        must(unused == next);

        /* the first instant that shows a time is not behind that time */

        must(ngx_rl_tz_instant(tz, when + offset) <= when);

        if (next == NGX_RL_TZ_FOREVER) {
            return;
        }

        when = next;
    }
}


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    u_char       *bytes;
    ngx_rl_tz_t   tz;

    /* the sanitizer sees what is read behind it */

    bytes = malloc(len ? len : 1);
    must(bytes != NULL);

    if (len) {
        memcpy(bytes, data, len);
    }

    (void) ngx_rl_tz_name_valid(bytes, len);

    if (ngx_rl_tz_read(&tz, bytes, len, NOW) == NULL) {
        fuzz_clock(&tz, NOW - 86400);
        fuzz_clock(&tz, 0);
        fuzz_clock(&tz, INT64_C(253402300799) - 86400 * 366);
    }

    free(bytes);

    return 0;
}
