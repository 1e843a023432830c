/*
 * A zone's document, as JSON: read strictly, with all that is wrong with it
 * named, and compiled to a policy. What is valid is what compiles: there is one
 * reader. All of this may run in a thread.
 */

#ifndef NGX_RATELIMIT_DOCUMENT_H_INCLUDED
#define NGX_RATELIMIT_DOCUMENT_H_INCLUDED

#include "ngx_ratelimit_policy.h"

#define NGX_RATELIMIT_DOCUMENT_MAJOR  1   /* of "format": "1.0" */
#define NGX_RATELIMIT_DOCUMENT_MINOR  0

/* of a document, beside its bytes (NGX_RATELIMIT_DOCUMENT_MAX) */
#define NGX_RATELIMIT_DOCUMENT_DEPTH       32      /* arrays and objects in
                                                      one another */
#define NGX_RATELIMIT_DOCUMENT_CONTAINERS  100000  /* of them in all */
#define NGX_RATELIMIT_DOCUMENT_RULES       1000
#define NGX_RATELIMIT_DOCUMENT_ENTRIES     10000   /* of a list, of overrides,
                                                      of assignments */

/* Before the first thread runs: jansson draws the seed of its hashes. */
void ngx_ratelimit_document_init(void);

/*
 * Reads text and returns its policy, complete but for finish(). NULL: there are
 * problems (or memory is out: then there are none). warnings: fields that a
 * newer minor format has and this one does not know; may be NULL.
 */
ngx_ratelimit_policy_t *ngx_ratelimit_document_compile(
    ngx_ratelimit_limiter_t *limiter, const ngx_str_t *text,
    ngx_ratelimit_problems_t *problems, ngx_ratelimit_problems_t *warnings,
    ngx_log_t *log);

#endif /* NGX_RATELIMIT_DOCUMENT_H_INCLUDED */
