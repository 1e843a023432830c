/*
 * Numbers and texts: the rate and the names that an operator writes, the
 * numbers that a header shows, the pairs of a query string or Cookie header.
 */

#ifndef NGX_RL_TEXT_H_INCLUDED
#define NGX_RL_TEXT_H_INCLUDED

#include "ngx_rl_types.h"

/*
 * Reads "<n>r/<period>": n is 0..2^30; period is s, m, h or d, or a number of
 * them ("10r/5s", "100r/m"), at most 366 days. Returns NULL and the two
 * numbers, or what was expected as a constant string.
 */
const char *ngx_rl_rate_parse(const u_char *text, size_t len, uint64_t *tokens,
    uint64_t *period_us);

/* Reads a decimal number min..max without sign. Returns 0, or -1. */
int ngx_rl_number_parse(const u_char *text, size_t len, uint64_t min,
    uint64_t max, uint64_t *value);

/* As that, from 0 on; a number above max reads as max. */
int ngx_rl_number_clip(const u_char *text, size_t len, uint64_t max,
    uint64_t *value);

/*
 * Writes value in decimal to out (20 bytes always suffice), returns the end.
 */
u_char *ngx_rl_number_write(u_char *out, uint64_t value);

/* what a span takes at most */
#define NGX_RL_SPAN_BYTES  (20 + sizeof(" seconds") - 1)

/*
 * Writes seconds as people say it, in the largest unit of which it is a whole
 * number: "1 minute", "90 minutes", "7 days". Returns the end.
 */
u_char *ngx_rl_span_write(u_char *out, uint64_t seconds);

/* Microseconds to whole seconds, rounded up. */
static inline uint64_t
ngx_rl_seconds_up(uint64_t us)
{
    return us / 1000000 + (us % 1000000 != 0);
}

/*
 * Lists of names that end with NULL, such as the algorithms. find returns the
 * place of a text in it, or -1. write writes '"a", "b" or "c"' to out, as far
 * as there is room before last, and returns the end.
 */
int ngx_rl_names_find(const char *const *names, const u_char *text, size_t len);
u_char *ngx_rl_names_write(u_char *out, u_char *last, const char *const *names);

/* Whether text is a rule's or zone's name: [A-Za-z0-9_.-]{1,64}. */
int ngx_rl_name_valid(const u_char *text, size_t len);

/* The value of a hexadecimal digit, or -1. */
static inline int
ngx_rl_hex_digit(u_char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }

    c |= 0x20;

    return (c >= 'a' && c <= 'f') ? c - 'a' + 10 : -1;
}

/*
 * Pairs of name and value are read as APIs read them, so that no other spelling
 * of a value is another value. Not decoded; both point into the text.
 */
typedef struct {
    const u_char  *name;
    const u_char  *value;
    size_t         name_len;
    size_t         value_len;
} ngx_rl_pair_t;

/*
 * Reads the next pair of a query string, from *text on, which moves behind it;
 * one without "=" has an empty value. Returns 1, or 0 at the end.
 */
int ngx_rl_query_pair(const u_char **text, const u_char *last,
    ngx_rl_pair_t *pair);

/* Whether the decoded name is this one, caseless: in any case. 1 or 0. */
int ngx_rl_query_name(const ngx_rl_pair_t *pair, const u_char *name, size_t len,
    int caseless);

/* Whether two texts of one length are the same but for the case of letters. */
int ngx_rl_caseless(const u_char *one, const u_char *two, size_t len);

/*
 * Decodes a name or value of a query string to out, which has len bytes or is
 * text itself: "%41" is "A", "+" a space, "%" without two digits itself.
 * Returns the length written.
 */
size_t ngx_rl_query_decode(const u_char *text, size_t len, u_char *out);

/*
 * Reads the next pair of a Cookie header (RFC 6265, section 4.2), without the
 * blanks around name and value. A pair without "=" is skipped. Returns 1, or 0
 * at the end.
 */
int ngx_rl_cookie_pair(const u_char **text, const u_char *last,
    ngx_rl_pair_t *pair);

/*
 * Decodes a cookie's value to out, which has len bytes or is text itself.
 * Quotes around it go, and inside them "\" before a byte, or before the three
 * octal digits of one, as Python writes them; "%41" is "A", as PHP and
 * Express write it. Returns the length written.
 */
size_t ngx_rl_cookie_decode(const u_char *text, size_t len, u_char *out);

/* Whether cookie_decode() would change this value: 1 or 0. */
int ngx_rl_cookie_encoded(const u_char *text, size_t len);

#endif /* NGX_RL_TEXT_H_INCLUDED */
