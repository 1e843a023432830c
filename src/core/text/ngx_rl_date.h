/*
 * Dates and times as people write them for machines: RFC 3339.
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

#endif /* NGX_RL_DATE_H_INCLUDED */
