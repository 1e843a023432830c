/*
 * Times of the week, by a local clock: "mon-fri" from 09:00 to 17:00. No clock
 * and no time zone is known here: the caller says what a clock there shows.
 */

#ifndef NGX_RL_WEEK_H_INCLUDED
#define NGX_RL_WEEK_H_INCLUDED

#include "ngx_rl_types.h"

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

#endif /* NGX_RL_WEEK_H_INCLUDED */
