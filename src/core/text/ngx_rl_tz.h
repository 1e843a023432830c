/*
 * Time zones: what a TZif file (RFC 9636, versions 1 to 4) says of the present
 * and the future, in a structure without pointers that its owner may copy.
 */

#ifndef NGX_RL_TZ_H_INCLUDED
#define NGX_RL_TZ_H_INCLUDED

#include "ngx_rl_types.h"

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

#endif /* NGX_RL_TZ_H_INCLUDED */
