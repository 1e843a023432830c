/*
 * Pairs of name and value: those of a query string, those of a Cookie header.
 * They are read as APIs read them, so that no other spelling of a value is
 * another value.
 */

#ifndef NGX_RL_PAIR_H_INCLUDED
#define NGX_RL_PAIR_H_INCLUDED

#include "ngx_rl_types.h"

/* Not decoded; both point into the text. */
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

#endif /* NGX_RL_PAIR_H_INCLUDED */
