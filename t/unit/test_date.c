/* Times of RFC 3339, against the C library's calendar. */

#include "unit.h"

#include "ngx_rl_date.h"

typedef struct {
    const char  *text;
    int64_t      seconds;   /* -1: refused */
} date_t;

static const date_t  dates[] = {
    { "1970-01-01T00:00:00Z", 0 },
    { "2026-12-01T00:00:00Z", 1796083200 },
    { "2026-12-01t00:00:00z", 1796083200 },
    { "2026-12-01T00:00:00.999999Z", 1796083200 },
    { "2026-12-01T00:00:00.0Z", 1796083200 },
    { "2026-12-01T01:30:00+01:30", 1796083200 },
    { "2026-12-01T23:59:00+23:59", 1796083200 },
    { "2026-11-30T19:00:00-05:00", 1796083200 },
    { "2026-12-01T00:00:00-00:00", 1796083200 },
    { "2024-02-29T23:59:60Z", 1709251200 },
    { "2000-02-29T00:00:00Z", 951782400 },
    { "9999-12-31T23:59:59Z", 253402300799 },

    { "", -1 },
    { "2026-12-01", -1 },
    { "2026-12-01T00:00:00", -1 },
    { "2026-12-01 00:00:00Z", -1 },
    { "2026-12-01T00:00Z", -1 },
    { "2026-12-01T00:00:00.Z", -1 },
    { "2026-12-01T00:00:00,5Z", -1 },
    { "2026-12-01T00:00:00Z ", -1 },
    { "2026-12-01T00:00:00+0100", -1 },
    { "2026-12-01T00:00:00+24:00", -1 },
    { "2026-12-01T00:00:00+01:60", -1 },
    { "2026-12-01T00:00:00+01:0", -1 },
    { "2026-13-01T00:00:00Z", -1 },
    { "2026-00-01T00:00:00Z", -1 },
    { "2026-12-00T00:00:00Z", -1 },
    { "2026-12-32T00:00:00Z", -1 },
    { "2026-11-31T00:00:00Z", -1 },
    { "2026-02-29T00:00:00Z", -1 },
    { "2100-02-29T00:00:00Z", -1 },
    { "2026-12-01T24:00:00Z", -1 },
    { "2026-12-01T00:60:00Z", -1 },
    { "2026-12-01T00:00:61Z", -1 },
    { "1969-12-31T23:59:59Z", -1 },
    { "1970-01-01T00:00:00+00:01", -1 },
    { "26-12-01T00:00:00Z", -1 },
    { "2026-1-01T00:00:00Z", -1 },
    { "2026-12-01T00:00:0", -1 },
    { "-026-12-01T00:00:00Z", -1 }
};


/* In memory of exactly that length, for the sanitizers. */
static int
parse(const char *text, int64_t *seconds)
{
    size_t len = strlen(text);
    u_char *copy = malloc(len + 1);
    assert_non_null(copy);
    memcpy(copy + 1, text, len);
    int rc = ngx_rl_date_parse(copy + 1, len, seconds);
    free(copy);

    return rc;
}


static void
test_table(void **state)
{
    for (size_t i = 0; i < COUNT(dates); i++) {
        int64_t seconds = -1;
        int rc = parse(dates[i].text, &seconds);

        if (rc != (dates[i].seconds < 0 ? -1 : 0)
            || (rc == 0 && seconds != dates[i].seconds))
        {
            fail_msg("\"%s\" is %lld", dates[i].text, (long long) seconds);
        }
    }
}


static void
test_calendar(void **state)
{
    char        text[64];
    int64_t     seconds;
    struct tm   tm;

    /* a step that meets every hour of the day */

    for (time_t t = 0; t < 253402300800; t += 86400 * 13 + 3601) {
        assert_non_null(gmtime_r(&t, &tm));
        assert_true(strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm));

        if (parse(text, &seconds) != 0 || seconds != t) {
            fail_msg("\"%s\" is %lld, expected %lld", text,
                     (long long) seconds, (long long) t);
        }
    }
}
