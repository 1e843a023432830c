/*
 * Edits of a document: the editor reads a part of the document, or makes the
 * next document out of it. It is a function of texts, knows no request, no
 * Redis and no clock, and runs in a thread.
 */

#ifndef NGX_RL_EDIT_H_INCLUDED
#define NGX_RL_EDIT_H_INCLUDED

#include "ngx_rl_document.h"

typedef enum {
    NGX_RL_EDIT_GET = 0,
    NGX_RL_EDIT_PUT,
    NGX_RL_EDIT_POST,
    NGX_RL_EDIT_PATCH,        /* RFC 7396 */
    NGX_RL_EDIT_DELETE
} ngx_rl_edit_method_e;

typedef enum {
    NGX_RL_EDIT_DOCUMENT = 0, /* "/document" */
    NGX_RL_EDIT_VALIDATE,     /* "/document/validate" */
    NGX_RL_EDIT_RULES,        /* "/rules" */
    NGX_RL_EDIT_RULE,         /* "/rules/{id}" */
    NGX_RL_EDIT_TIER_LIMITS,         /* "/tiers/{tier}", of all rules */
    NGX_RL_EDIT_TIER_ASSIGNMENTS,     /* "/tier_of" */
    NGX_RL_EDIT_TIER_ASSIGNMENT,      /* "/tier_of/{key}" */
    NGX_RL_EDIT_OVERRIDES,    /* "/overrides" */
    NGX_RL_EDIT_OVERRIDE,     /* "/overrides/{id}" */
    NGX_RL_EDIT_ALLOW,
    NGX_RL_EDIT_DENY
} ngx_rl_edit_resource_e;

typedef enum {
    NGX_RL_EDIT_OK = 0,
    NGX_RL_EDIT_CREATED,      /* nothing was there before */
    NGX_RL_EDIT_GONE,         /* there is no reply */
    NGX_RL_EDIT_NOT_FOUND,
    NGX_RL_EDIT_INVALID,      /* see problems */
    NGX_RL_EDIT_REJECTS_ALL,  /* would reject all: needs force */
    NGX_RL_EDIT_TOO_LARGE,    /* the next document */
    NGX_RL_EDIT_ERROR         /* no memory */
} ngx_rl_edit_status_e;

typedef struct {
    ngx_pool_t              *pool;      /* of all that is made here */
    ngx_rl_limiter_t        *limiter;
    ngx_rl_edit_resource_e   resource;
    ngx_rl_edit_method_e     method;
    ngx_str_t                name;      /* in the path; or empty */
    ngx_str_t                rule;      /* "?rule="; or empty */
    ngx_str_t                key;       /* "?key="; or empty */
    ngx_str_t                owner;     /* "?owner=", of a PUT of all rules: it
                                           replaces that owner's; or empty */
    ngx_str_t                body;
    ngx_str_t                base;      /* the document; or empty */
    uint64_t                 version;   /* of base; 0: none */
    time_t                   now;       /* overrides that have ended leave with
                                           the next change */
    u_char                   random[16]; /* for an id */
    unsigned                 force:1;
    unsigned                 dry_run:1; /* a change is shown, not made: no next
                                           document */
    unsigned                 clear:1;   /* keys are kept in the clear */

    /* the result */
    ngx_rl_edit_status_e     status;
    ngx_str_t                reply;     /* JSON; empty for VALIDATE; of a dry
                                           run what would change */
    ngx_str_t                made;      /* the id of a POSTed override; or
                                           empty */
    ngx_str_t                document;  /* the next one; empty: no change */
    ngx_rl_policy_t         *policy;    /* of it, to be finished and released;
                                           or NULL */
    ngx_rl_problems_t        problems;  /* places and ids are those of the next
                                           document */
    ngx_rl_problems_t        warnings;
} ngx_rl_edit_t;

void ngx_rl_edit(ngx_rl_edit_t *edit);

/*
 * When the policy is finished, its regular expressions may have added problems.
 * Returns 1 if the edit is not valid, or 0 if they are all of rules that it
 * leaves as they were, and that this gateway skips.
 */
ngx_uint_t ngx_rl_edit_invalid(const ngx_rl_edit_t *edit);

#endif /* NGX_RL_EDIT_H_INCLUDED */
