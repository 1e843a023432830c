/*
 * Dates and times as people write them for machines: RFC 3339.
 */

#ifndef NGX_RATELIMIT_DATE_H_INCLUDED
#define NGX_RATELIMIT_DATE_H_INCLUDED

#include "ngx_ratelimit_types.h"

/*
 * Reads "2026-12-01T00:00:00Z", also with "+01:00" in place of "Z" and with
 * fractions of a second, which are cut off; of 1970 and later. Returns 0 and
 * the seconds since the epoch, or -1.
 */
int ngx_ratelimit_date_parse(const u_char *text, size_t len, int64_t *seconds);

#endif /* NGX_RATELIMIT_DATE_H_INCLUDED */
