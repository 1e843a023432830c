/*
 * What the endpoint does with a document: reads a part of it, or makes the next
 * one out of it. A function of texts, that knows no request, no Redis and no
 * clock; it runs in a thread.
 */

#ifndef NGX_RATELIMIT_EDIT_H_INCLUDED
#define NGX_RATELIMIT_EDIT_H_INCLUDED

#include "ngx_ratelimit_document.h"

typedef enum {
    NGX_RATELIMIT_EDIT_GET = 0,
    NGX_RATELIMIT_EDIT_PUT,
    NGX_RATELIMIT_EDIT_POST,
    NGX_RATELIMIT_EDIT_PATCH,        /* RFC 7396 */
    NGX_RATELIMIT_EDIT_DELETE
} ngx_ratelimit_edit_method_e;

typedef enum {
    NGX_RATELIMIT_EDIT_DOCUMENT = 0, /* "/rules": the whole */
    NGX_RATELIMIT_EDIT_VALIDATE,     /* "/rules/validate" */
    NGX_RATELIMIT_EDIT_RULE,         /* "/rules/{id}" */
    NGX_RATELIMIT_EDIT_TIER,         /* "/tiers/{tier}", of all rules */
    NGX_RATELIMIT_EDIT_TIER_OF,      /* "/tier-of", "/tier-of/{key}" */
    NGX_RATELIMIT_EDIT_OVERRIDES,    /* "/overrides", "/overrides/{id}" */
    NGX_RATELIMIT_EDIT_WHITELIST,
    NGX_RATELIMIT_EDIT_BLACKLIST
} ngx_ratelimit_edit_resource_e;

typedef enum {
    NGX_RATELIMIT_EDIT_OK = 0,       /* reply; a change: document, too */
    NGX_RATELIMIT_EDIT_CREATED,      /* the same; what was not there before */
    NGX_RATELIMIT_EDIT_GONE,         /* the same; no reply */
    NGX_RATELIMIT_EDIT_NOT_FOUND,
    NGX_RATELIMIT_EDIT_INVALID,      /* problems */
    NGX_RATELIMIT_EDIT_DENY_ALL,     /* it would reject all: needs force */
    NGX_RATELIMIT_EDIT_TOO_LARGE,    /* the document it would make */
    NGX_RATELIMIT_EDIT_ERROR         /* memory is out */
} ngx_ratelimit_edit_status_e;

typedef struct {
    ngx_pool_t                     *pool;      /* of all that is made here */
    ngx_ratelimit_limiter_t        *limiter;
    ngx_ratelimit_edit_resource_e   resource;
    ngx_ratelimit_edit_method_e     method;
    ngx_str_t                       name;      /* behind it; or empty */
    ngx_str_t                       query;     /* "rule=orders"; or empty */
    ngx_str_t                       body;
    ngx_str_t                       base;      /* the document; empty: none */
    uint64_t                        version;   /* of base; 0: none */
    time_t                          now;       /* overrides that have ended
                                                  leave with the next change */
    u_char                          random[16]; /* for an id */
    unsigned                        force:1;
    unsigned                        clear:1;   /* keys are kept in the clear */

    /* what became of it */
    ngx_ratelimit_edit_status_e     status;
    ngx_str_t                       reply;     /* JSON */
    ngx_str_t                       made;      /* the name of a POSTed one; or
                                                  empty */
    ngx_str_t                       document;  /* the next one; empty: no
                                                  change */
    ngx_ratelimit_policy_t         *policy;    /* of it, to be finished and
                                                  released; or NULL */
    ngx_ratelimit_problems_t        problems;
    ngx_ratelimit_problems_t        warnings;
    ngx_str_t                       part;      /* "/rules/3": what the body is
                                                  of the document */
} ngx_ratelimit_edit_t;

void ngx_ratelimit_edit(ngx_ratelimit_edit_t *edit);

/*
 * Problems of the policy, which finish() has found, point into the document:
 * makes places of the body of them. Returns 1: the edit is not valid; 0: all of
 * them are of rules that it leaves as they were, and that are skipped here.
 */
ngx_uint_t ngx_ratelimit_edit_places(ngx_ratelimit_edit_t *edit,
    ngx_ratelimit_problems_t *problems);

#endif /* NGX_RATELIMIT_EDIT_H_INCLUDED */
