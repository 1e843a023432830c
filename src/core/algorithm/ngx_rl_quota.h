/*
 * The parameters of a limit in the header fields RateLimit-Policy and
 * RateLimit: items of Structured Fields (RFC 9651), after
 * draft-ietf-httpapi-ratelimit-headers.
 */

#ifndef NGX_RL_QUOTA_H_INCLUDED
#define NGX_RL_QUOTA_H_INCLUDED

#include "ngx_rl_limit.h"

/* of a hash of a client's id, what the client sees: base64 without padding */
#define NGX_RL_PK_BYTES  9

#define NGX_RL_PK_TEXT  (sizeof(";pk=:0123456789ab:") - 1)

/* the most that the parameters of an item take, without "pk" */
#define NGX_RL_QUOTA_BYTES                                                    \
    (sizeof(";q=1073741824;qu=\"concurrent-requests\"") - 1)

/*
 * How long until there is more of what a counter limits, by its answer. If it
 * rejects: until the cost can be paid. If it is an empty bucket: until its next
 * token. In all other cases: until it equals a fresh one.
 */
uint64_t ngx_rl_quota_more_us(const ngx_rl_limit_t *limit,
    const ngx_rl_answer_t *answer);

/*
 * Each writes the parameters of one item to out, which holds
 * NGX_RL_QUOTA_BYTES, and returns their end. more_us is as from
 * ngx_rl_quota_more_us(), and written in seconds, rounded up.
 */
u_char *ngx_rl_quota_policy(u_char *out, const ngx_rl_limit_t *limit);
u_char *ngx_rl_quota_left(u_char *out, uint32_t remaining, uint64_t more_us);

/* Another hash of a client's id of 16 bytes, which may be shown. */
ngx_rl_id_t ngx_rl_quota_shown(const u_char *id);

/* The parameter that names a client in both: its first bytes. */
void ngx_rl_quota_pk(u_char out[NGX_RL_PK_TEXT], const u_char *id);

#endif /* NGX_RL_QUOTA_H_INCLUDED */
