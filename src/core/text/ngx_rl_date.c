/*
 * Dates: RFC 3339, section 5.6. Days are counted from 1 March, so that the one
 * that a leap year adds is a year's last.
 *
 * Time zones: RFC 9636. A file has a block of 32-bit times and, from version 2
 * on, one of 64-bit times, and a rule for what comes later: a TZ string of
 * POSIX.
 */

#include "ngx_rl_date.h"
#include "ngx_rl_text.h"

#define NGX_RL_WEEK_DAYS  7u

#define NGX_RL_TZ_HEADER      44
#define NGX_RL_TZ_DAY         86400
#define NGX_RL_TZ_PAST        (400 * NGX_RL_TZ_DAY)
#define NGX_RL_TZ_OFFSET      93600   /* 26 hours */

/* the end of the year 9999 */
#define NGX_RL_TZ_MAX         INT64_C(253402300799)

/* of the rule: the year that is looked at, and two on each side */
#define NGX_RL_TZ_YEARS       5

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

static const char *const  ngx_rl_week_names[] = {
    "mon", "tue", "wed", "thu", "fri", "sat", "sun", NULL
};

/* counts of a block, in the order of the header */
enum {
    NGX_RL_TZ_UT = 0,
    NGX_RL_TZ_STD,
    NGX_RL_TZ_LEAPS,
    NGX_RL_TZ_TIMES,
    NGX_RL_TZ_TYPES,
    NGX_RL_TZ_CHARS,
    NGX_RL_TZ_COUNTS
};

typedef struct {
    const u_char  *p;
    const u_char  *last;
} ngx_rl_tz_text_t;


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


/* A signed number of four or eight bytes. */
static int64_t
ngx_rl_tz_big_endian(const u_char *p, uint32_t width)
{
    uint64_t  n;
    uint32_t  i;

    n = (p[0] & 0x80) ? UINT64_MAX : 0;

    for (i = 0; i < width; i++) {
        n = (n << 8) | p[i];
    }

    return (int64_t) n;
}


/* Where a block ends, whose counts it reads, or NULL. */
static const u_char *
ngx_rl_tz_block(const u_char *p, const u_char *last, uint32_t width,
    uint32_t counts[NGX_RL_TZ_COUNTS])
{
    uint32_t  i;
    uint64_t  len;

    if (last - p < NGX_RL_TZ_HEADER || memcmp(p, "TZif", 4) != 0) {
        return NULL;
    }

    for (i = 0; i < NGX_RL_TZ_COUNTS; i++) {
        counts[i] = (uint32_t) ngx_rl_tz_big_endian(p + 20 + 4 * i, 4);

        if (counts[i] > NGX_RL_TZ_FILE) {
            return NULL;
        }
    }

    len = (uint64_t) counts[NGX_RL_TZ_TIMES] * (width + 1)
          + counts[NGX_RL_TZ_TYPES] * 6
          + counts[NGX_RL_TZ_CHARS]
          + counts[NGX_RL_TZ_LEAPS] * (width + 4)
          + counts[NGX_RL_TZ_STD] + counts[NGX_RL_TZ_UT];

    p += NGX_RL_TZ_HEADER;

    return (len <= (uint64_t) (last - p)) ? p + len : NULL;
}


/*
 * data: times, their types by number, then the types, of six bytes. The offset
 * before all changes that are kept is that of the last change in the past.
 */
static const char *
ngx_rl_tz_changes(ngx_rl_tz_t *tz, const u_char *data, uint32_t width,
    const uint32_t *counts, int64_t now)
{
    int64_t        at, before, offset;
    uint32_t       i, n;
    const u_char  *types;

    n = counts[NGX_RL_TZ_TIMES];
    types = data + (size_t) n * (width + 1);
    before = INT64_MIN;

    if (counts[NGX_RL_TZ_TYPES] == 0) {
        return "it has no offset";
    }

    tz->offset = (int32_t) ngx_rl_tz_big_endian(types, 4);

    for (i = 0; i < n; i++) {
        at = ngx_rl_tz_big_endian(data + (size_t) i * width, width);

        if (data[(size_t) n * width + i] >= counts[NGX_RL_TZ_TYPES]
            || (i && at <= before))
        {
            return "its changes are in disorder";
        }

        before = at;
        offset = ngx_rl_tz_big_endian(
                             types + 6 * data[(size_t) n * width + i], 4);

        if (offset < -NGX_RL_TZ_OFFSET || offset > NGX_RL_TZ_OFFSET) {
            return "an offset is above 26 hours";
        }

        if (at <= now - NGX_RL_TZ_PAST) {
            tz->offset = (int32_t) offset;

        } else if (at > NGX_RL_TZ_MAX) {
            break;

        } else if (tz->n < NGX_RL_TZ_CHANGES
                   && offset != (tz->n ? tz->changes[tz->n - 1].offset
                                       : tz->offset))
        {
            tz->changes[tz->n].at = at;
            tz->changes[tz->n++].offset = (int32_t) offset;
        }
    }

    if (tz->offset < -NGX_RL_TZ_OFFSET || tz->offset > NGX_RL_TZ_OFFSET) {
        return "an offset is above 26 hours";
    }

    return NULL;
}


/* Goes over a byte, if it is that one. */
static int
ngx_rl_tz_byte(ngx_rl_tz_text_t *text, u_char c)
{
    if (text->p == text->last || *text->p != c) {
        return -1;
    }

    text->p++;

    return 0;
}


/* An abbreviation: three letters and more, or what stands in "<>". */
static int
ngx_rl_tz_word(ngx_rl_tz_text_t *text)
{
    u_char         c;
    const u_char  *p;

    p = text->p;

    if (ngx_rl_tz_byte(text, '<') == 0) {
        text->p = memchr(p, '>', (size_t) (text->last - p));

        if (text->p == NULL) {
            text->p = text->last;
            return -1;
        }

        text->p++;
        return 0;
    }

    for ( /* void */ ; text->p < text->last; text->p++) {
        c = *text->p | 0x20;

        if (c < 'a' || c > 'z') {
            break;
        }
    }

    return (text->p - p < 3) ? -1 : 0;
}


static int
ngx_rl_tz_number(ngx_rl_tz_text_t *text, uint32_t min, uint32_t max,
    uint32_t *n)
{
    const u_char  *p;

    *n = 0;

    for (p = text->p; text->p < text->last; text->p++) {

        if (*text->p < '0' || *text->p > '9') {
            break;
        }

        *n = *n * 10 + (*text->p - '0');

        if (*n > max) {
            return -1;
        }
    }

    return (text->p == p || *n < min) ? -1 : 0;
}


/* "-1", "+5:30", "2:00:00" */
static int
ngx_rl_tz_clock(ngx_rl_tz_text_t *text, uint32_t hours, int32_t *seconds)
{
    int32_t   sign, unit;
    uint32_t  n;

    sign = 1;

    if (ngx_rl_tz_byte(text, '-') == 0) {
        sign = -1;

    } else {
        (void) ngx_rl_tz_byte(text, '+');
    }

    if (ngx_rl_tz_number(text, 0, hours, &n) != 0) {
        return -1;
    }

    *seconds = (int32_t) n * 3600;

    for (unit = 60; unit && ngx_rl_tz_byte(text, ':') == 0; unit /= 60) {
        if (ngx_rl_tz_number(text, 0, 59, &n) != 0) {
            return -1;
        }

        *seconds += (int32_t) n * unit;
    }

    *seconds *= sign;

    return 0;
}


/* ",M3.5.0", ",J60" or ",59", and "/2" behind it or not */
static int
ngx_rl_tz_date(ngx_rl_tz_text_t *text, ngx_rl_tz_date_t *date)
{
    int       rc;
    uint32_t  month, week, day;

    month = 0;
    week = 0;
    day = 0;
    date->kind = '0';

    if (ngx_rl_tz_byte(text, ',') != 0) {
        return -1;
    }

    if (ngx_rl_tz_byte(text, 'M') == 0) {
        date->kind = 'M';
        rc = ngx_rl_tz_number(text, 1, 12, &month)
             || ngx_rl_tz_byte(text, '.')
             || ngx_rl_tz_number(text, 1, 5, &week)
             || ngx_rl_tz_byte(text, '.')
             || ngx_rl_tz_number(text, 0, 6, &day);

    } else if (ngx_rl_tz_byte(text, 'J') == 0) {
        date->kind = 'J';
        rc = ngx_rl_tz_number(text, 1, 365, &day);

    } else {
        rc = ngx_rl_tz_number(text, 0, 365, &day);
    }

    if (rc != 0) {
        return -1;
    }

    date->month = (u_char) month;
    date->week = (u_char) week;
    date->day = (uint16_t) day;
    date->time = 7200;

    return (ngx_rl_tz_byte(text, '/') == 0)
           ? ngx_rl_tz_clock(text, 167, &date->time) : 0;
}


/* "CET-1CEST,M3.5.0,M10.5.0/3": what is ahead of UTC has a minus */
static int
ngx_rl_tz_rule(ngx_rl_tz_t *tz, ngx_rl_tz_text_t *text)
{
    if (ngx_rl_tz_word(text) != 0
        || ngx_rl_tz_clock(text, 24, &tz->standard) != 0)
    {
        return -1;
    }

    tz->standard = -tz->standard;
    tz->summer = tz->standard;

    if (text->p == text->last) {
        return 0;
    }

    if (ngx_rl_tz_word(text) != 0) {
        return -1;
    }

    tz->summer += 3600;

    if (text->p < text->last && *text->p != ',') {

        if (ngx_rl_tz_clock(text, 24, &tz->summer) != 0) {
            return -1;
        }

        tz->summer = -tz->summer;
    }

    return ngx_rl_tz_date(text, &tz->dates[0]) != 0
           || ngx_rl_tz_date(text, &tz->dates[1]) != 0;
}


/* "\n", the rule or nothing, "\n" */
static const char *
ngx_rl_tz_footer(ngx_rl_tz_t *tz, const u_char *p, const u_char *last)
{
    const u_char      *end;
    ngx_rl_tz_text_t   text;

    if (last - p < 2 || *p != '\n') {
        return "it is cut off";
    }

    p++;

    end = memchr(p, '\n', (size_t) (last - p));
    if (end == NULL) {
        return "it is cut off";
    }

    if (end == p) {
        return NULL;
    }

    text.p = p;
    text.last = end;

    if (ngx_rl_tz_rule(tz, &text) != 0 || text.p != end) {
        return "its rule for later years is none";
    }

    tz->ruled = 1;

    return NULL;
}


/* When the clock shows the change of a year, as if it were UTC. */
static int64_t
ngx_rl_tz_date_of(const ngx_rl_tz_date_t *date, uint32_t year)
{
    int64_t  day;

    if (date->kind != 'M') {

        /* "J60" is 1 March in every year, "59" the 60th day */

        day = ngx_rl_date_days(year, 1, 1) + date->day;

        if (date->kind == 'J') {
            day += (date->day >= 60
                    && ngx_rl_date_month_days(year, 2) == 29) - 1;
        }

    } else {
        day = ngx_rl_date_days(year, date->month, 1);

        /* 1 January 1970 was a Thursday */

        day += (date->day + 7 - (uint32_t) ((day + 4) % 7)) % 7;
        day += 7 * (date->week - 1);

        if (date->week == 5
            && day >= ngx_rl_date_days(year, date->month, 1)
                      + ngx_rl_date_month_days(year, date->month))
        {
            day -= 7;
        }
    }

    return day * NGX_RL_TZ_DAY + date->time;
}


/*
 * By the rule alone. The changes of the years around when are put in order.
 * Where two fall together, summer begins: so a rule says that it never ends.
 */
static int32_t
ngx_rl_tz_ruled(const ngx_rl_tz_t *tz, int64_t when, int64_t *next)
{
    int32_t             offset, other;
    uint32_t            i, j, n, year, unused;
    ngx_rl_tz_change_t  change, all[2 * NGX_RL_TZ_YEARS];

    *next = NGX_RL_TZ_FOREVER;

    if (tz->standard == tz->summer) {
        return tz->standard;
    }

    when = (when < 0) ? 0 : ngx_rl_min(when, NGX_RL_TZ_MAX);

    ngx_rl_date_split(when / NGX_RL_TZ_DAY, &year, &unused, &unused);

    for (n = 0; n < 2 * NGX_RL_TZ_YEARS; n++) {
        offset = (n & 1) ? tz->standard : tz->summer;
        other = (n & 1) ? tz->summer : tz->standard;

        change.at = ngx_rl_tz_date_of(&tz->dates[n & 1],
                                      year - 2 + n / 2) - other;
        change.offset = offset;

        for (i = n; i > 0 && (all[i - 1].at > change.at
                              || (all[i - 1].at == change.at
                                  && all[i - 1].offset == tz->summer)); i--)
        {
            all[i] = all[i - 1];
        }

        all[i] = change;
    }

    for (i = 0; i < n && all[i].at <= when; i++) { /* void */ }

    offset = i ? all[i - 1].offset : tz->standard;

    for (j = i; j < n - 1; j++) {

        if (all[j].offset != offset && all[j + 1].at != all[j].at) {
            *next = (all[j].at <= NGX_RL_TZ_MAX)
                    ? all[j].at : NGX_RL_TZ_FOREVER;
            break;
        }
    }

    return offset;
}


const char *
ngx_rl_tz_read(ngx_rl_tz_t *tz, const u_char *data, size_t len, int64_t now)
{
    int64_t        when;
    uint32_t       width, counts[NGX_RL_TZ_COUNTS];
    const char    *error;
    const u_char  *p, *last, *end;

    memset(tz, 0, sizeof(ngx_rl_tz_t));

    p = data;
    last = data + len;
    width = 4;

    end = ngx_rl_tz_block(p, last, width, counts);

    if (end && p[4] >= '2') {
        p = end;
        width = 8;
        end = ngx_rl_tz_block(p, last, width, counts);
    }

    if (end == NULL) {
        return "it is none of a time zone, or cut off";
    }

    if (counts[NGX_RL_TZ_LEAPS]) {
        return "it counts leap seconds";
    }

    error = ngx_rl_tz_changes(tz, p + NGX_RL_TZ_HEADER, width, counts, now);

    if (error == NULL && width == 8) {
        error = ngx_rl_tz_footer(tz, end, last);
    }

    if (error || !tz->ruled) {
        return error;
    }

    /* the rule's changes are worked out once, as far as there is room */

    when = tz->n ? tz->changes[tz->n - 1].at : now - NGX_RL_TZ_PAST;

    if (tz->n == 0) {
        tz->offset = ngx_rl_tz_ruled(tz, when, &when);

    } else if (tz->n < NGX_RL_TZ_CHANGES) {
        (void) ngx_rl_tz_ruled(tz, when, &when);
    }

    while (tz->n < NGX_RL_TZ_CHANGES && when != NGX_RL_TZ_FOREVER) {
        tz->changes[tz->n].at = when;
        tz->changes[tz->n++].offset = ngx_rl_tz_ruled(tz, when, &when);
    }

    return NULL;
}


int32_t
ngx_rl_tz_offset(const ngx_rl_tz_t *tz, int64_t when, int64_t *next)
{
    uint32_t  i;

    for (i = 0; i < tz->n; i++) {
        if (when < tz->changes[i].at) {
            *next = tz->changes[i].at;
            return i ? tz->changes[i - 1].offset : tz->offset;
        }
    }

    if (tz->ruled) {
        return ngx_rl_tz_ruled(tz, when, next);
    }

    *next = NGX_RL_TZ_FOREVER;

    return i ? tz->changes[i - 1].offset : tz->offset;
}


int64_t
ngx_rl_tz_instant(const ngx_rl_tz_t *tz, int64_t local)
{
    int64_t  when, next;
    int32_t  offset;

    when = local - NGX_RL_TZ_OFFSET;

    for ( ;; ) {
        offset = ngx_rl_tz_offset(tz, when, &next);

        if (local - offset < next) {
            return (local - offset > when) ? local - offset : when;
        }

        when = next;
    }
}


int
ngx_rl_tz_name_valid(const u_char *name, size_t len)
{
    u_char  c;
    size_t  i;

    if (len == 0 || len > NGX_RL_TZ_NAME || name[len - 1] == '/') {
        return 0;
    }

    for (i = 0; i < len; i++) {
        c = name[i];

        if (c == '/') {
            if (i == 0 || name[i - 1] == '/') {
                return 0;
            }

        } else if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
                     || (c >= '0' && c <= '9')
                     || c == '_' || c == '+' || c == '-'))
        {
            return 0;
        }
    }

    return 1;
}
