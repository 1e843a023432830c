/*
 * RFC 3339, section 5.6. Days are counted from 1 March, so that the one that a
 * leap year adds is a year's last.
 */

#include "ngx_ratelimit_date.h"


/* A number of n digits, and what stands behind it ('\0': anything). */
typedef struct {
    uint32_t  n;
    uint32_t  min;
    uint32_t  max;
    u_char    end;
} ngx_ratelimit_date_field_t;

enum {
    NGX_RATELIMIT_YEAR = 0,
    NGX_RATELIMIT_MONTH,
    NGX_RATELIMIT_DAY,
    NGX_RATELIMIT_HOUR,
    NGX_RATELIMIT_MINUTE,
    NGX_RATELIMIT_SECOND,
    NGX_RATELIMIT_FIELDS
};

static int ngx_ratelimit_date_field(const u_char **p, const u_char *last,
    const ngx_ratelimit_date_field_t *field, uint32_t *value);
static int ngx_ratelimit_date_zone(const u_char *p, const u_char *last,
    int64_t *seconds);
static uint32_t ngx_ratelimit_date_month_days(uint32_t year, uint32_t month);


static const ngx_ratelimit_date_field_t  ngx_ratelimit_date_fields[] = {
    { 4, 1970, 9999, '-' },
    { 2, 1, 12, '-' },
    { 2, 1, 31, 'T' },
    { 2, 0, 23, ':' },
    { 2, 0, 59, ':' },
    { 2, 0, 60, '\0' }   /* a leap second */
};

static const ngx_ratelimit_date_field_t  ngx_ratelimit_date_offset[] = {
    { 2, 0, 23, ':' },
    { 2, 0, 59, '\0' }
};


int
ngx_ratelimit_date_parse(const u_char *text, size_t len, int64_t *seconds)
{
    size_t         i;
    int64_t        offset, days;
    uint32_t       v[NGX_RATELIMIT_FIELDS], year, month;
    const u_char  *p, *last;

    p = text;
    last = text + len;

    for (i = 0; i < NGX_RATELIMIT_FIELDS; i++) {
        if (ngx_ratelimit_date_field(&p, last, &ngx_ratelimit_date_fields[i],
                                     &v[i])
            != 0)
        {
            return -1;
        }
    }

    if (v[NGX_RATELIMIT_DAY]
        > ngx_ratelimit_date_month_days(v[NGX_RATELIMIT_YEAR],
                                        v[NGX_RATELIMIT_MONTH]))
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

    if (ngx_ratelimit_date_zone(p, last, &offset) != 0) {
        return -1;
    }

    year = v[NGX_RATELIMIT_YEAR] - (v[NGX_RATELIMIT_MONTH] < 3);
    month = (v[NGX_RATELIMIT_MONTH] + 9) % 12;

    days = (int64_t) year * 365 + year / 4 - year / 100 + year / 400
           + (153 * month + 2) / 5 + v[NGX_RATELIMIT_DAY] - 719469;

    *seconds = days * 86400 + v[NGX_RATELIMIT_HOUR] * 3600
               + v[NGX_RATELIMIT_MINUTE] * 60 + v[NGX_RATELIMIT_SECOND]
               - offset;

    return (*seconds < 0) ? -1 : 0;
}


/* Letters may be small. */
static int
ngx_ratelimit_date_field(const u_char **p, const u_char *last,
    const ngx_ratelimit_date_field_t *field, uint32_t *value)
{
    uint32_t  i;

    if (last - *p < (ptrdiff_t) field->n) {
        return -1;
    }

    *value = 0;

    for (i = 0; i < field->n; i++, (*p)++) {

        if (**p < '0' || **p > '9') {
            return -1;
        }

        *value = *value * 10 + (uint32_t) (**p - '0');
    }

    if (*value < field->min || *value > field->max) {
        return -1;
    }

    if (field->end == '\0') {
        return 0;
    }

    if (*p == last || (**p != field->end
                       && !(field->end == 'T' && **p == 't')))
    {
        return -1;
    }

    (*p)++;

    return 0;
}


/* "Z", or how far the clock there is ahead. */
static int
ngx_ratelimit_date_zone(const u_char *p, const u_char *last, int64_t *seconds)
{
    u_char    sign;
    uint32_t  hours, minutes;

    if (p == last) {
        return -1;
    }

    sign = *p++;

    if (sign == 'Z' || sign == 'z') {
        *seconds = 0;
        return (p == last) ? 0 : -1;
    }

    if ((sign != '+' && sign != '-')
        || ngx_ratelimit_date_field(&p, last, &ngx_ratelimit_date_offset[0],
                                    &hours)
           != 0
        || ngx_ratelimit_date_field(&p, last, &ngx_ratelimit_date_offset[1],
                                    &minutes)
           != 0
        || p != last)
    {
        return -1;
    }

    *seconds = (int64_t) hours * 3600 + minutes * 60;

    if (sign == '-') {
        *seconds = -*seconds;
    }

    return 0;
}


static uint32_t
ngx_ratelimit_date_month_days(uint32_t year, uint32_t month)
{
    static const u_char  days[] = {
        31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31
    };

    if (month == 2
        && ((year % 4 == 0 && year % 100 != 0) || year % 400 == 0))
    {
        return 29;
    }

    return days[month - 1];
}
