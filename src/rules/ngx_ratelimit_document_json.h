/*
 * A document as a tree of jansson's: for who compiles one, and who edits one.
 * (What "edit" needs of "document"; whose file this is.)
 */

#ifndef NGX_RATELIMIT_DOCUMENT_JSON_H_INCLUDED
#define NGX_RATELIMIT_DOCUMENT_JSON_H_INCLUDED

#include "ngx_ratelimit_document.h"

struct json_t;

#define NGX_RATELIMIT_DOCUMENT_KEY  (sizeof("sha256:") - 1 + 64)

/*
 * Any JSON value, read strictly: no duplicate members, no NaN, not deeper than
 * NGX_RATELIMIT_DOCUMENT_DEPTH. NULL: there is a problem, or memory is out: then
 * there is none.
 */
struct json_t *ngx_ratelimit_document_parse(const ngx_str_t *text,
    ngx_ratelimit_problems_t *problems);

/*
 * Compiles the tree as compile() does a text, and makes it canonical (API keys
 * become what is stored of them, unless clear). deny_all: it would reject all.
 * depth is checked here, too.
 */
ngx_ratelimit_policy_t *ngx_ratelimit_document_read(
    ngx_ratelimit_limiter_t *limiter, struct json_t *root, ngx_uint_t clear,
    ngx_ratelimit_problems_t *problems, ngx_ratelimit_problems_t *warnings,
    ngx_uint_t *deny_all, ngx_log_t *log);

/* Canonical text in pool, with a line end behind it. NGX_ERROR: no memory. */
ngx_int_t ngx_ratelimit_document_write(const struct json_t *root,
    ngx_pool_t *pool, ngx_str_t *text);

/*
 * What is stored of an API key that no glob may stand for: "sha256:..." as it
 * is, of another its digest; written to buf. Returns a text there, or the key.
 */
ngx_str_t ngx_ratelimit_document_key(const ngx_str_t *key,
    u_char buf[NGX_RATELIMIT_DOCUMENT_KEY]);

/* RFC 3339. NGX_OK or NGX_DECLINED. */
ngx_int_t ngx_ratelimit_document_time(const ngx_str_t *text, time_t *time);

#endif /* NGX_RATELIMIT_DOCUMENT_JSON_H_INCLUDED */
