/*
 * A document as a tree of jansson's: for who compiles one, and who edits one.
 */

#ifndef NGX_RATELIMIT_DOCUMENT_JSON_H_INCLUDED
#define NGX_RATELIMIT_DOCUMENT_JSON_H_INCLUDED

#include "ngx_ratelimit_document.h"

struct json_t;

/* bytes of "sha256:" and the digest behind it */
#define NGX_RATELIMIT_DOCUMENT_KEY  (sizeof("sha256:") - 1 + 64)

/*
 * Any JSON value, read strictly: no duplicate members, no NaN, not deeper than
 * NGX_RATELIMIT_DOCUMENT_DEPTH; in time linear in its length. NULL: there is a
 * problem, or memory is out: then there is none.
 */
struct json_t *ngx_ratelimit_document_parse(const ngx_str_t *text,
    ngx_ratelimit_problems_t *problems);

/*
 * Compiles the tree as ngx_ratelimit_document_compile() does a text, and makes
 * it canonical: API keys become what is stored of them, unless clear. Where
 * there are problems, some may have become that. warnings may be NULL. NULL:
 * there are problems, those that were there before included, or memory is out:
 * then the list is empty.
 *
 * deny_all: NULL for a document that is stored already. For one that is to be
 * it says whether it would reject all requests: a pattern of the deny list
 * matches every API key, or a rule without any condition, which is enforced on
 * all keys and is in no group, has a constant cost above its capacity and
 * neither tiers nor overrides. That one, but not the deny list, gives way to an
 * allow list with a pattern that matches every key. Rules of nginx.conf are the
 * operator's own. Overrides that do not fit a rule (read_fit() of read_json.h)
 * are problems of what is to be stored, and warnings of what is.
 */
ngx_ratelimit_policy_t *ngx_ratelimit_document_read(
    ngx_ratelimit_limiter_t *limiter, struct json_t *root, ngx_uint_t clear,
    ngx_ratelimit_problems_t *problems, ngx_ratelimit_problems_t *warnings,
    ngx_uint_t *deny_all, ngx_log_t *log);

/*
 * The same of one that was changed. known: what is skipped of the one before;
 * rules and overrides with the same problems are skipped again.
 */
ngx_ratelimit_policy_t *ngx_ratelimit_document_read_next(
    ngx_ratelimit_limiter_t *limiter, struct json_t *root, ngx_uint_t clear,
    ngx_ratelimit_problems_t *problems, ngx_ratelimit_problems_t *warnings,
    ngx_uint_t *deny_all, const ngx_ratelimit_problems_t *known,
    ngx_log_t *log);

/*
 * Canonical text in pool: one line, members in their order, numbers as they
 * were written as far as a double knows it, and a line end behind it.
 * NGX_ERROR: memory is out.
 */
ngx_int_t ngx_ratelimit_document_write(const struct json_t *root,
    ngx_pool_t *pool, ngx_str_t *text);

/*
 * Writes the stored form of an API key, where no glob is allowed, to buf: a key
 * "sha256:..." in lower case, any other key as its digest. Returns the text in
 * buf, or the key itself if no digest follows its "sha256:".
 */
ngx_str_t ngx_ratelimit_document_key(const ngx_str_t *key,
    u_char buf[NGX_RATELIMIT_DOCUMENT_KEY]);

/*
 * RFC 3339, of 1970 and later: fractions of a second are cut off. Returns
 * NGX_OK or NGX_DECLINED.
 */
ngx_int_t ngx_ratelimit_document_time(const ngx_str_t *text, time_t *time);

#endif /* NGX_RATELIMIT_DOCUMENT_JSON_H_INCLUDED */
