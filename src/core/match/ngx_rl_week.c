/* Days and minutes of a week: how they are written, and which it has. */

#include "ngx_rl_week.h"

#include "ngx_rl_text.h"

#define NGX_RL_WEEK_DAYS  7u

static const char *const  ngx_rl_week_names[] = {
    "mon", "tue", "wed", "thu", "fri", "sat", "sun", NULL
};


int
ngx_rl_week_days(const u_char *text, size_t len, uint32_t *days)
{
    int            day, last;
    size_t         i, n;
    const u_char  *span;

    span = text;

    for (i = 0; i <= len; i++) {

        if (i < len && text[i] != ',') {
            continue;
        }

        /* "mon", "mon-fri", "fri-mon": a name has three bytes */

        n = text + i - span;
        day = ngx_rl_names_find(ngx_rl_week_names, span, (n == 7) ? 3 : n);
        last = day;

        if (n == 7) {
            last = (span[3] == '-')
                   ? ngx_rl_names_find(ngx_rl_week_names, span + 4, 3) : -1;
        }

        if (day < 0 || last < 0) {
            return -1;
        }

        *days |= 1u << day;

        while (day != last) {
            day = (day + 1) % (int) NGX_RL_WEEK_DAYS;
            *days |= 1u << day;
        }

        span = text + i + 1;
    }

    return 0;
}


int
ngx_rl_week_minute(const u_char *text, size_t len, uint32_t *minute)
{
    uint64_t  h, m;

    if (len != 5 || text[2] != ':'
        || ngx_rl_number_parse(text, 2, 0, 24, &h) != 0
        || ngx_rl_number_parse(text + 3, 2, 0, 59, &m) != 0
        || h * 60 + m > NGX_RL_DAY_MINUTES)
    {
        return -1;
    }

    *minute = (uint32_t) (h * 60 + m);

    return 0;
}


/* The epoch began on a Thursday. */
int
ngx_rl_week_has(const ngx_rl_week_t *week, uint64_t local)
{
    uint32_t  minute, today, before;
    uint64_t  minutes, day;

    minutes = local / 60;
    minute = (uint32_t) (minutes % NGX_RL_DAY_MINUTES);

    day = minutes / NGX_RL_DAY_MINUTES + 3;
    today = week->days >> day % NGX_RL_WEEK_DAYS & 1;

    if (week->from < week->to) {
        return today && minute >= week->from && minute < week->to;
    }

    before = week->days >> (day - 1) % NGX_RL_WEEK_DAYS & 1;

    return (today && minute >= week->from) || (before && minute < week->to);
}
