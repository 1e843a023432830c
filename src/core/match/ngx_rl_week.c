/* Days and minutes of a week: how they are written, and which it has. */

#include "ngx_rl_week.h"

#include "ngx_rl_text.h"

#define NGX_RL_WEEK_DAYS  7u

static const char *const  ngx_rl_week_names[] = {
    "mon", "tue", "wed", "thu", "fri", "sat", "sun", NULL
};


/* "mon", "mon-fri", "fri-mon" */
static int
ngx_rl_week_span(const u_char *text, size_t len, uint32_t *days)
{
    int  day, last;

    /* a name has three bytes */

    day = ngx_rl_names_find(ngx_rl_week_names, text, (len == 7) ? 3 : len);
    last = day;

    if (len == 7) {
        last = (text[3] == '-')
               ? ngx_rl_names_find(ngx_rl_week_names, text + 4, 3)
               : -1;
    }

    if (day < 0 || last < 0) {
        return -1;
    }

    *days |= 1u << day;

    while (day != last) {
        day = (day + 1) % (int) NGX_RL_WEEK_DAYS;
        *days |= 1u << day;
    }

    return 0;
}


int
ngx_rl_week_days(const u_char *text, size_t len, uint32_t *days)
{
    size_t  i, begin;

    begin = 0;

    for (i = 0; i <= len; i++) {

        if (i < len && text[i] != ',') {
            continue;
        }

        if (ngx_rl_week_span(text + begin, i - begin, days) != 0) {
            return -1;
        }

        begin = i + 1;
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
