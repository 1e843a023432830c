/*
 * RFC 3339, section 5.6. Days are counted from 1 March, so that the one that a
 * leap year adds is a year's last.
 */

#include "ngx_rl_date.h"


enum {
    NGX_RL_YEAR = 0,
    NGX_RL_MONTH,
    NGX_RL_DAY,
    NGX_RL_HOUR,
    NGX_RL_MINUTE,
    NGX_RL_SECOND,
    NGX_RL_FIELDS
};

/* a minute may have a leap second */
static const uint32_t  ngx_rl_date_least[] = { 1970, 1, 1, 0, 0, 0 };

static const uint32_t  ngx_rl_date_most[] = { 9999, 12, 31, 23, 59, 60 };


/*
 * Reads numbers into v, which is zeroed: of the form each "0" is a digit, the
 * other bytes stand for themselves; "T" may be small.
 */
static int
ngx_rl_date_fields(const u_char **p, const u_char *last, const char *form,
    uint32_t *v)
{
    u_char  c;

    for ( /* void */ ; *form; form++) {

        if (*p == last) {
            return -1;
        }

        c = *(*p)++;

        if (*form != '0') {

            if (c != *form && !(*form == 'T' && c == 't')) {
                return -1;
            }

            v++;

        } else if (c < '0' || c > '9') {
            return -1;

        } else {
            *v = *v * 10 + (uint32_t) (c - '0');
        }
    }

    return 0;
}


uint32_t
ngx_rl_date_month_days(uint32_t year, uint32_t month)
{
    static const u_char  days[] = {
        31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };

    if (month == 2 && ((year % 4 == 0 && year % 100 != 0) || year % 400 == 0)) {
        return 29;
    }

    return days[month - 1];
}


int64_t
ngx_rl_date_days(uint32_t year, uint32_t month, uint32_t day)
{
    year -= (month < 3);
    month = (month + 9) % 12;

    return (int64_t) year * 365 + year / 4 - year / 100 + year / 400
           + (153 * month + 2) / 5 + day - 719469;
}


int
ngx_rl_date_parse(const u_char *text, size_t len, int64_t *seconds)
{
    size_t         i;
    u_char         sign;
    int64_t        offset;
    uint32_t       v[NGX_RL_FIELDS], zone[2];
    const u_char  *p, *last;

    p = text;
    last = text + len;
    memset(v, 0, sizeof(v));
    memset(zone, 0, sizeof(zone));

    if (ngx_rl_date_fields(&p, last, "0000-00-00T00:00:00", v) != 0) {
        return -1;
    }

    for (i = 0; i < NGX_RL_FIELDS; i++) {
        if (v[i] < ngx_rl_date_least[i] || v[i] > ngx_rl_date_most[i]) {
            return -1;
        }
    }

    if (v[NGX_RL_DAY] > ngx_rl_date_month_days(v[NGX_RL_YEAR], v[NGX_RL_MONTH]))
    {
        return -1;
    }

    if (p < last && *p == '.') {
        p++;

        if (p == last || *p < '0' || *p > '9') {
            return -1;
        }

        while (p < last && *p >= '0' && *p <= '9') {
            p++;
        }
    }

    /* "Z", or how far the clock there is ahead */

    sign = (p < last) ? *p++ : '\0';

    if (sign == '+' || sign == '-') {
        if (ngx_rl_date_fields(&p, last, "00:00", zone) != 0
            || zone[0] > ngx_rl_date_most[NGX_RL_HOUR]
            || zone[1] > ngx_rl_date_most[NGX_RL_MINUTE])
        {
            return -1;
        }

    } else if (sign != 'Z' && sign != 'z') {
        return -1;
    }

    if (p != last) {
        return -1;
    }

    offset = (int64_t) zone[0] * 3600 + zone[1] * 60;
    offset = (sign == '-') ? -offset : offset;

    *seconds = ngx_rl_date_days(v[NGX_RL_YEAR], v[NGX_RL_MONTH], v[NGX_RL_DAY])
               * 86400
               + v[NGX_RL_HOUR] * 3600 + v[NGX_RL_MINUTE] * 60
               + v[NGX_RL_SECOND] - offset;

    return (*seconds < 0) ? -1 : 0;
}


/*
 * The days since 1 March of year 0, in periods of 400 years; in one, those
 * since a 1 March.
 */
void
ngx_rl_date_split(int64_t days, uint32_t *year, uint32_t *month, uint32_t *day)
{
    uint64_t  since, of_period, of_year, years, months;

    since = (uint64_t) days + 719468;
    of_period = since % 146097;
    years = (of_period - of_period / 1460 + of_period / 36524
             - of_period / 146096) / 365;
    of_year = of_period - (365 * years + years / 4 - years / 100);
    months = (5 * of_year + 2) / 153;

    *day = (uint32_t) (of_year - (153 * months + 2) / 5 + 1);
    *month = (uint32_t) (months < 10 ? months + 3 : months - 9);
    *year = (uint32_t) (since / 146097 * 400 + years + (months >= 10));
}
