/*
 * A zone's document, as JSON: read strictly, with all its problems named, and
 * compiled to a policy. A document is valid if it compiles, as there is one
 * reader. All of this may run in a thread.
 */

#ifndef NGX_RL_DOCUMENT_H_INCLUDED
#define NGX_RL_DOCUMENT_H_INCLUDED

#include "ngx_rl_policy.h"

#define NGX_RL_DOCUMENT_MAJOR  1   /* of "format": "1.0" */
#define NGX_RL_DOCUMENT_MINOR  0

/* of a document, beside its bytes (NGX_RL_DOCUMENT_MAX) */
#define NGX_RL_DOCUMENT_DEPTH       32      /* arrays and objects in one
                                               another */
#define NGX_RL_DOCUMENT_CONTAINERS  100000  /* of them in all */
#define NGX_RL_DOCUMENT_RULES       1000
#define NGX_RL_DOCUMENT_ENTRIES     10000   /* of a list, of overrides, of
                                               assignments */

/* Before the first thread runs: jansson draws the seed of its hashes. */
void ngx_rl_document_init(void);

/* bytes of "sha256:" and the digest behind it */
#define NGX_RL_DOCUMENT_KEY  (sizeof("sha256:") - 1 + 64)

struct json_t;

/*
 * Reads text and returns its policy, complete but for finish(). NULL: there are
 * problems (or memory is out: then there are none). warnings: fields that a
 * newer minor format has and this one does not know; may be NULL.
 */
ngx_rl_policy_t *ngx_rl_document_compile(ngx_rl_limiter_t *limiter,
    const ngx_str_t *text, ngx_rl_problems_t *problems,
    ngx_rl_problems_t *warnings, ngx_log_t *log);

/*
 * Any JSON value, read strictly: no duplicate members, no NaN, not deeper than
 * NGX_RL_DOCUMENT_DEPTH; in time linear in its length. The members of a
 * document get the names of today. NULL: there is a problem, or memory is out:
 * then there is none.
 */
struct json_t *ngx_rl_document_parse(const ngx_str_t *text,
    ngx_rl_problems_t *problems);

/*
 * The same names for a document (rule is 0), or for one rule or an array of
 * them. If a member has both names, the old one stays, which the reader does
 * not know. Not 0: memory is out.
 */
int ngx_rl_document_rename(struct json_t *value, ngx_uint_t rule);

/*
 * Compiles the tree as ngx_rl_document_compile() does a text, and makes
 * it canonical: API keys become what is stored of them, unless clear. Where
 * there are problems, some may have become that. warnings may be NULL. NULL:
 * there are problems, those that were there before included, or memory is out:
 * then the list is empty.
 *
 * rejects_all: NULL for a document that is stored already. For one that is to
 * be stored it is set if the document would reject all requests. Then a pattern
 * of the deny list matches every API key, a network of it has all addresses, or
 * a rule can never grant a request. Such a rule has a constant cost above its
 * capacity, no condition, no group, and neither tiers nor overrides. An allow
 * list with such an entry makes up for the rule, but not for the deny list.
 * Rules of nginx.conf are not looked at.
 *
 * known: NULL, or the problems of the document before this one. A rule or a
 * override that still has one of them is skipped again.
 */
ngx_rl_policy_t *ngx_rl_document_read(ngx_rl_limiter_t *limiter,
    struct json_t *root, ngx_uint_t clear, ngx_rl_problems_t *problems,
    ngx_rl_problems_t *warnings, ngx_uint_t *rejects_all,
    const ngx_rl_problems_t *known, ngx_log_t *log);

/* A string as the tree has it; of another value, or none, "". */
ngx_str_t ngx_rl_document_text(const struct json_t *value);

/*
 * Canonical text in pool: one line, members in their order, numbers as they
 * were written as far as a double knows it, and a line end behind it.
 * NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_document_write(const struct json_t *root, ngx_pool_t *pool,
    ngx_str_t *text);

/*
 * A name of a list's entry in pool, which no entry of another client has: an
 * API key and its hash have the same one. NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_document_entry(const struct json_t *entry, ngx_pool_t *pool,
    ngx_str_t *name);

/*
 * Writes the stored form of an API key, where no glob is allowed, to buf: a key
 * "sha256:..." in lower case, any other key as its digest. Returns the text in
 * buf, or the key itself if no digest follows its "sha256:".
 */
ngx_str_t ngx_rl_document_key(const ngx_str_t *key,
    u_char buf[NGX_RL_DOCUMENT_KEY]);

#endif /* NGX_RL_DOCUMENT_H_INCLUDED */
