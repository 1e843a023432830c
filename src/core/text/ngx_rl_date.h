/*
 * Dates as people write them for machines (RFC 3339), times of the week, and
 * time zones.
 */

#ifndef NGX_RL_DATE_H_INCLUDED
#define NGX_RL_DATE_H_INCLUDED

#include "ngx_rl_types.h"

/*
 * Reads "2026-12-01T00:00:00Z", also with "+01:00" in place of "Z" and with
 * fractions of a second, which are cut off; of 1970 and later. Returns 0 and
 * the seconds since the epoch, or -1.
 */
int ngx_rl_date_parse(const u_char *text, size_t len, int64_t *seconds);

/*
 * The days from 1 January 1970 to a date of the Gregorian calendar (year 0 and
 * later, month 1..12, day 1 and up to any), and the date of such days, which
 * are not below 0.
 */
int64_t ngx_rl_date_days(uint32_t year, uint32_t month, uint32_t day);
void ngx_rl_date_split(int64_t days, uint32_t *year, uint32_t *month,
    uint32_t *day);

uint32_t ngx_rl_date_month_days(uint32_t year, uint32_t month);

/*
 * Times of the week, by a local clock: "mon-fri" from 09:00 to 17:00. The
 * caller says what a clock there shows.
 */

#define NGX_RL_WEEK_ALL       0x7fu   /* days */
#define NGX_RL_DAY_MINUTES    1440u

typedef struct {
    uint32_t  days;    /* on which a time begins: bits, from Monday on */
    uint32_t  from;    /* minutes of the day, below 1440 */
    uint32_t  to;      /* the first minute behind it, 1440 at most and not
                          from; below from it is one of the next day */
} ngx_rl_week_t;

/*
 * Reads days, "sat,sun" or "fri-mon", and adds their bits. Returns 0, or -1.
 */
int ngx_rl_week_days(const u_char *text, size_t len, uint32_t *days);

/* Reads "00:00" to "24:00", as minutes. Returns 0, or -1. */
int ngx_rl_week_minute(const u_char *text, size_t len, uint32_t *minute);

/*
 * Whether the week has the minute that a local clock shows, which is given as
 * seconds since 1970-01-01 00:00 of that clock, not below 0.
 */
int ngx_rl_week_has(const ngx_rl_week_t *week, uint64_t local);

/*
 * Time zones: what a TZif file (RFC 9636, versions 1 to 4) says of the present
 * and the future, in a structure without pointers that its owner may copy.
 */

#define NGX_RL_TZ_CHANGES  32   /* of the clock: 16 years of two */
#define NGX_RL_TZ_NAME     64   /* bytes of a zone's */
#define NGX_RL_TZ_FILE     16384   /* bytes: four times the longest */

/* offset and next of a clock that never changes again */
#define NGX_RL_TZ_FOREVER  INT64_MAX

/* the day of a year on which the clock changes */
typedef struct {
    int32_t   time;        /* seconds after that day's 0:00, may be below 0 */
    u_char    kind;        /* 'J', '0' (day of the year) or 'M' */
    u_char    month;       /* 1..12 */
    u_char    week;        /* 1..5, 5: the last one */
    uint16_t  day;         /* of the week, from Sunday on; of the year */
} ngx_rl_tz_date_t;

typedef struct {
    int64_t                  at;       /* seconds since the epoch */
    int32_t                  offset;   /* from then on */
} ngx_rl_tz_change_t;

typedef struct {
    uint32_t            name;       /* a hash of it; its owner sets it */
    int32_t             offset;     /* before the first change */
    uint16_t            n;          /* changes */
    uint16_t            ruled;      /* 1: the rule tells those behind */
    int32_t             standard;   /* of the rule: two offsets, and */
    int32_t             summer;     /* when each begins */
    ngx_rl_tz_date_t    dates[2];   /* of summer, of standard */
    ngx_rl_tz_change_t  changes[NGX_RL_TZ_CHANGES];
} ngx_rl_tz_t;

/*
 * Reads a file's bytes. now: the time, in seconds since the epoch; what lies
 * more than 400 days before it is left out. Returns NULL, or what is wrong with
 * the file as a constant string ("it is cut off"); then *tz is undefined.
 */
const char *ngx_rl_tz_read(ngx_rl_tz_t *tz, const u_char *data, size_t len,
    int64_t now);

/*
 * The offset at an instant: how many seconds the clock there is ahead of UTC,
 * from -93600 to 93600. *next is the instant of its next change, above when, or
 * NGX_RL_TZ_FOREVER. Right from 400 days before the file was read, until
 * the year 9999. If a file lists more than 32 changes after that, those behind
 * the 32nd are known only as far as the file's rule tells them. A scan of a few
 * entries: for use with each request.
 */
int32_t ngx_rl_tz_offset(const ngx_rl_tz_t *tz, int64_t when, int64_t *next);

/*
 * The first instant at which the clock there shows local, in seconds as if it
 * were UTC, or later: where the clock leaps over local, that of the leap.
 */
int64_t ngx_rl_tz_instant(const ngx_rl_tz_t *tz, int64_t local);

/*
 * Whether a text may be the name of a zone and so a path below the zones'
 * folder: 1 to 64 of A-Z, a-z, 0-9, "_", "+", "-" and, between them, "/".
 */
int ngx_rl_tz_name_valid(const u_char *name, size_t len);

#endif /* NGX_RL_DATE_H_INCLUDED */
