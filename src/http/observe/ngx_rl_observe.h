/*
 * The lists of single clients for operators, written where a request is
 * decided.
 */

#ifndef NGX_RL_OBSERVE_H_INCLUDED
#define NGX_RL_OBSERVE_H_INCLUDED

#include "ngx_rl_request.h"

#define NGX_RL_KEY_SHA256      "sha256:"
#define NGX_RL_KEY_SHA256_LEN  (sizeof(NGX_RL_KEY_SHA256) - 1)

/* calls inside the module then need no table of addresses */
#pragma GCC visibility push(hidden)

/*
 * The request is decided: keeps a rejection, also one of a dry run, and some of
 * the penalized requests.
 */
void ngx_rl_watch_outcome(ngx_http_request_t *r, ngx_rl_ctx_t *ctx);

/*
 * One of a list's stream is taken: the client counts, by the key of a rule that
 * counts it.
 */
void ngx_rl_watch_sample(const ngx_rl_client_t *client,
    const ngx_rl_rule_t *rule, ngx_rl_watch_top_e which);

/* The number of a rule's key in these lists. */
uint64_t ngx_rl_watch_kind(const ngx_rl_limiter_t *limiter,
    const ngx_str_t *rule_key);

/*
 * Sets a key to its text, as the lists of a zone that keeps keys in clear have
 * it: an address of $binary_remote_addr is readable. NGX_DECLINED: the text
 * would be read as the hash of another key.
 */
ngx_int_t ngx_rl_watch_text(const ngx_str_t *rule_key, const ngx_str_t *text,
    ngx_rl_watch_key_t *key);

/*
 * Sets a key to its SHA-256. hashed: a text like "sha256:<64 digits>" is a hash
 * itself. NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_watch_hash(const ngx_rl_watch_t *watch, const ngx_str_t *text,
    ngx_uint_t hashed, ngx_rl_watch_key_t *key);

#pragma GCC visibility pop

#endif /* NGX_RL_OBSERVE_H_INCLUDED */
