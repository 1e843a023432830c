/*
 * The headers of every response to a limited request, error pages and an
 * upstream's errors included. Ours replace an upstream's of the same name.
 *
 * Numbers, the names of rules and keyed hashes are all that stands in them. No
 * byte that a client has sent gets here.
 */

#include "ngx_rl_request.h"

#include "ngx_rl_limit.h"

/* beside the sets: Retry-After, of a rejected request */
#define NGX_RL_HEADERS_RETRY  0x08

/* of each counter in a list, besides its name */
#define NGX_RL_ITEM_BYTES                                                     \
    (sizeof(", \"\"") - 1 + NGX_RL_QUOTA_BYTES + NGX_RL_PK_TEXT)

/* in the order of a response */
typedef enum {
    NGX_RL_X_LIMIT = 0,
    NGX_RL_X_REMAINING,
    NGX_RL_X_RESET,
    NGX_RL_X_POLICY,
    NGX_RL_X_STATUS,
    NGX_RL_DRAFT3_LIMIT,
    NGX_RL_DRAFT3_REMAINING,
    NGX_RL_DRAFT3_RESET,
    NGX_RL_IETF_POLICY,
    NGX_RL_IETF_LEFT,
    NGX_RL_RETRY_AFTER,
    NGX_RL_HEADERS
} ngx_rl_header_e;

typedef struct {
    ngx_str_t   name;
    u_char     *lowcase;
    ngx_uint_t  set;  /* a bit */
} ngx_rl_header_t;

/* Where the next header and the next value go. */
typedef struct {
    ngx_table_elt_t  *header;
    u_char           *value;
} ngx_rl_writer_t;

/* the shortest of these names, which begin with "X" or "R" */
#define NGX_RL_HEADER_MIN  (sizeof("RateLimit") - 1)

static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;

static const ngx_rl_header_t  ngx_rl_headers[] = {

    { ngx_string("X-RateLimit-Limit"), (u_char *) "x-ratelimit-limit",
      NGX_RL_HEADERS_X },

    { ngx_string("X-RateLimit-Remaining"), (u_char *) "x-ratelimit-remaining",
      NGX_RL_HEADERS_X },

    { ngx_string("X-RateLimit-Reset"), (u_char *) "x-ratelimit-reset",
      NGX_RL_HEADERS_X },

    { ngx_string("X-RateLimit-Policy"), (u_char *) "x-ratelimit-policy",
      NGX_RL_HEADERS_X },

    { ngx_string("X-RateLimit-Status"), (u_char *) "x-ratelimit-status",
      NGX_RL_HEADERS_X },

    { ngx_string("RateLimit-Limit"), (u_char *) "ratelimit-limit",
      NGX_RL_HEADERS_DRAFT3 },

    { ngx_string("RateLimit-Remaining"), (u_char *) "ratelimit-remaining",
      NGX_RL_HEADERS_DRAFT3 },

    { ngx_string("RateLimit-Reset"), (u_char *) "ratelimit-reset",
      NGX_RL_HEADERS_DRAFT3 },

    { ngx_string("RateLimit-Policy"), (u_char *) "ratelimit-policy",
      NGX_RL_HEADERS_IETF },

    { ngx_string("RateLimit"), (u_char *) "ratelimit", NGX_RL_HEADERS_IETF },

    { ngx_string("Retry-After"), (u_char *) "retry-after",
      NGX_RL_HEADERS_RETRY }
};


/* Whether a response with headers of these sets has none of that name. */
static ngx_uint_t
ngx_rl_replaced(const ngx_str_t *name, ngx_uint_t sets)
{
    size_t                  x, len;
    ngx_uint_t              i;
    const ngx_rl_header_t  *header;

    for (i = 0; i < NGX_RL_HEADERS; i++) {
        header = &ngx_rl_headers[i];

        if (header->name.len == name->len && (header->set & sets)
            && ngx_strncasecmp(name->data, header->lowcase, name->len) == 0)
        {
            return 1;
        }
    }

    if ((sets & ~NGX_RL_HEADERS_RETRY) == 0 || (sets & NGX_RL_HEADERS_KEEP)) {
        return 0;
    }

    /* "RateLimit", "RateLimit-*", "X-RateLimit-*" */

    x = (ngx_strncasecmp(name->data, (u_char *) "x-", 2) == 0) ? 2 : 0;
    len = sizeof("ratelimit") - 1;

    return name->len >= x + len
           && ngx_strncasecmp(name->data + x, (u_char *) "ratelimit", len) == 0
           && (name->len == x + len || name->data[x + len] == '-');
}


/*
 * Drops an upstream's headers of limits: all of them or, with "keep", those of
 * the names that we write. Its Retry-After stays unless we write one.
 */
static void
ngx_rl_hide_headers(ngx_http_request_t *r, ngx_uint_t sets)
{
    u_char            c;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h, *last;

    for (part = &r->headers_out.headers.part; part; part = part->next) {
        h = part->elts;
        last = h + part->nelts;

        for ( /* void */ ; h < last; h++) {

            if (h->key.len < NGX_RL_HEADER_MIN) {
                continue;
            }

            c = ngx_tolower(h->key.data[0]);

            if ((c == 'x' || c == 'r') && ngx_rl_replaced(&h->key, sets)) {
                h->hash = 0;
            }
        }
    }
}


/*
 * The last part of a list, with room for all headers; NULL: memory is out. A
 * part without that room is filled up with headers that are not sent.
 */
static ngx_list_part_t *
ngx_rl_room(ngx_list_t *headers)
{
    ngx_table_elt_t  *h;

    while (headers->nalloc - headers->last->nelts < NGX_RL_HEADERS) {
        h = ngx_list_push(headers);
        if (h == NULL) {
            return NULL;
        }

        ngx_memzero(h, sizeof(ngx_table_elt_t));
    }

    return headers->last;
}


/* The value stays as long as the request, or its policies. */
static ngx_inline void
ngx_rl_write(ngx_rl_writer_t *w, ngx_rl_header_e which, const void *value,
    size_t len)
{
    ngx_table_elt_t        *h;
    const ngx_rl_header_t  *header;

    header = &ngx_rl_headers[which];
    h = w->header++;

    h->hash = 1;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    h->key = header->name;
    h->lowcase_key = header->lowcase;
    h->value.data = (u_char *) value;
    h->value.len = len;
}


static ngx_inline void
ngx_rl_write_number(ngx_rl_writer_t *w, ngx_rl_header_e which, uint64_t number)
{
    u_char  *value;

    value = w->value;
    w->value = ngx_rl_number_write(value, number);

    ngx_rl_write(w, which, value, w->value - value);
}


static void
ngx_rl_write_x(ngx_rl_writer_t *w, ngx_rl_ctx_t *ctx,
    const ngx_rl_counter_t *counter)
{
    const ngx_rl_limit_t  *limit;

    limit = ngx_rl_counter_limit(counter);

    ngx_rl_write(w, NGX_RL_X_LIMIT, limit->text, limit->digits);

    if (!ngx_rl_has_answer(counter)) {
        ngx_rl_write(w, NGX_RL_X_REMAINING, "-1", 2);

    } else {
        ngx_rl_write_number(w, NGX_RL_X_REMAINING,
                            ngx_rl_counter_remaining(counter));

        if (limit->algorithm != NGX_RL_CONCURRENCY) {
            ngx_rl_write_number(w, NGX_RL_X_RESET, ngx_rl_reset(ctx, counter));
        }
    }

    if (counter->source == NGX_RL_SOURCE_FALLBACK) {
        ngx_rl_write(w, NGX_RL_X_POLICY, "degraded", sizeof("degraded") - 1);
        ngx_rl_write(w, NGX_RL_X_STATUS, "degraded", sizeof("degraded") - 1);
    }
}


/*
 * As ngx_rl_quota_more_us(), from now on: the answer is of the decision.
 * The request may have been delayed, or its response been long in coming.
 */
static uint64_t
ngx_rl_more_us(const ngx_rl_ctx_t *ctx, const ngx_rl_counter_t *counter)
{
    uint64_t  more_us, passed_us;

    more_us = ngx_rl_quota_more_us(ngx_rl_counter_limit(counter),
                                   &counter->answer);

    if (more_us == NGX_RL_NEVER) {
        return more_us;
    }

    passed_us = ngx_rl_passed_us(ctx);

    return (more_us > passed_us) ? more_us - passed_us : 0;
}


static void
ngx_rl_write_draft3(ngx_rl_writer_t *w, const ngx_rl_ctx_t *ctx,
    const ngx_rl_counter_t *counter)
{
    uint64_t               more_us;
    const ngx_rl_limit_t  *limit;

    limit = ngx_rl_counter_limit(counter);

    ngx_rl_write(w, NGX_RL_DRAFT3_LIMIT, limit->text, limit->text_len);

    if (!ngx_rl_has_answer(counter)) {
        return;
    }

    ngx_rl_write_number(w, NGX_RL_DRAFT3_REMAINING,
                        ngx_rl_counter_remaining(counter));

    more_us = ngx_rl_more_us(ctx, counter);

    if (more_us != NGX_RL_NEVER) {
        ngx_rl_write_number(w, NGX_RL_DRAFT3_RESET, ngx_rl_seconds_up(more_us));
    }
}


u_char *
ngx_rl_put_name(u_char *p, const ngx_rl_check_t *check,
    const ngx_rl_counter_t *counter)
{
    ngx_uint_t               i;
    const ngx_str_t         *id, *zone;
    const ngx_rl_counter_t  *other;

    id = &counter->rule->id;
    zone = &counter->client->limiter->zone.name;

    *p++ = '"';

    for (i = 0; i < check->ncounters; i++) {
        other = &check->counters[i];

        if (other != counter && !other->dry_run
            && ngx_rl_equal(&other->rule->id, id))
        {
            p = ngx_cpymem(p, zone->data, zone->len);
            *p++ = '/';
            break;
        }
    }

    p = ngx_cpymem(p, id->data, id->len);
    *p++ = '"';

    return p;
}


/*
 * Two lists: every rule that is enforced, the same ones whatever happens to a
 * request; and the tokens left of those rules, as far as they are known. Takes
 * the next header and returns the one behind the lists; NULL: memory is out.
 */
static ngx_table_elt_t *
ngx_rl_write_lists(ngx_table_elt_t *header, ngx_http_request_t *r,
    const ngx_rl_ctx_t *ctx)
{
    size_t                   size, name_len, pk_len;
    u_char                  *p, *left, *lists[2], *name;
    u_char                   pk[NGX_RL_PK_TEXT];
    ngx_uint_t               i;
    ngx_rl_writer_t          w;
    const ngx_rl_check_t    *check;
    const ngx_rl_client_t   *client;
    const ngx_rl_counter_t  *counter;

    check = &ctx->check;
    client = NULL;

    size = 0;

    for (i = 0; i < check->ncounters; i++) {
        size += NGX_RL_ITEM_BYTES + ngx_rl_name_bytes(&check->counters[i]);
    }

    lists[0] = ngx_pnalloc(r->pool, 2 * size);
    if (lists[0] == NULL) {
        return NULL;
    }

    lists[1] = lists[0] + size;
    p = lists[0];
    left = lists[1];

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->dry_run) {
            continue;
        }

        if (p != lists[0]) {
            p = ngx_cpymem(p, ", ", 2);
        }

        name = p;
        p = ngx_rl_put_name(p, check, counter);
        name_len = p - name;

        p = ngx_rl_quota_policy(p, ngx_rl_counter_limit(counter));

        /* one for which Redis was not asked has no hash */

        pk_len = 0;

        if (counter->source != NGX_RL_SOURCE_NONE) {
            pk_len = sizeof(pk);

            if (client != counter->client) {
                client = counter->client;
                ngx_rl_quota_pk(pk, ngx_rl_client_hash(counter->client));
            }
        }

        p = ngx_cpymem(p, pk, pk_len);

        if (!ngx_rl_has_answer(counter)) {
            continue;
        }

        if (left != lists[1]) {
            left = ngx_cpymem(left, ", ", 2);
        }

        left = ngx_cpymem(left, name, name_len);
        left = ngx_rl_quota_left(left, ngx_rl_counter_remaining(counter),
                                 ngx_rl_more_us(ctx, counter));
        left = ngx_cpymem(left, pk, pk_len);
    }

    w.header = header;

    ngx_rl_write(&w, NGX_RL_IETF_POLICY, lists[0], p - lists[0]);

    if (left != lists[1]) {
        ngx_rl_write(&w, NGX_RL_IETF_LEFT, lists[1], left - lists[1]);
    }

    return w.header;
}


/*
 * The values are the limit's text and numbers, for which the context has room.
 * A penalty has no limit: its answers have Retry-After alone.
 */
static ngx_int_t
ngx_rl_add_headers(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    ngx_int_t                retry_after;
    ngx_uint_t               sets;
    ngx_list_part_t         *part;
    ngx_table_elt_t         *first;
    ngx_rl_writer_t          w;
    const ngx_rl_counter_t  *counter;

    counter = ctx->check.strictest;
    sets = counter ? ctx->conf->headers : 0;

    /* an error_page may have made a redirect or a success of it */

    if (ngx_rl_check_refused(&ctx->check)
        && !(r->error_page && r->headers_out.status < NGX_HTTP_BAD_REQUEST))
    {
        sets |= NGX_RL_HEADERS_RETRY;
    }

    if (r->headers_out.headers.part.nelts) {
        ngx_rl_hide_headers(r, sets);
    }

    part = ngx_rl_room(&r->headers_out.headers);
    if (part == NULL) {
        return NGX_ERROR;
    }

    first = (ngx_table_elt_t *) part->elts + part->nelts;
    w.header = first;
    w.value = ctx->numbers;

    if (sets & NGX_RL_HEADERS_X) {
        ngx_rl_write_x(&w, ctx, counter);
    }

    if (sets & NGX_RL_HEADERS_DRAFT3) {
        ngx_rl_write_draft3(&w, ctx, counter);
    }

    if (sets & NGX_RL_HEADERS_IETF) {
        w.header = ngx_rl_write_lists(w.header, r, ctx);
        if (w.header == NULL) {
            return NGX_ERROR;
        }
    }

    if (sets & NGX_RL_HEADERS_RETRY) {

        /* the strictest of those that deny has the longest wait */

        retry_after = ctx->penalized ? (ngx_int_t) ngx_rl_penalty_seconds(ctx)
                                     : ngx_rl_retry_after(counter);

        if (retry_after != -1) {
            ngx_rl_write_number(&w, NGX_RL_RETRY_AFTER, retry_after);
        }
    }

    part->nelts += w.header - first;

    return NGX_OK;
}


static ngx_int_t
ngx_rl_filter(ngx_http_request_t *r)
{
    ngx_rl_ctx_t  *ctx;

    ctx = (r == r->main) ? ngx_rl_ctx(r) : NULL;

    if (ctx == NULL || !ctx->answered) {
        return ngx_http_next_header_filter(r);
    }

    /* the response counts, by its status or its header */

    if (ctx->needs & NGX_RL_NEEDS_SETTLE) {
        ngx_rl_charge_header(r, ctx);

        if (ctx->ends) {
            ngx_rl_charge_every(r, ctx);
        }
    }

    if (ctx->needs & NGX_RL_NEEDS_STATUS) {
        ngx_rl_penalty_events(r, ctx, r->headers_out.status);
    }

    if ((ctx->check.strictest || ctx->penalized)
        && ctx->conf->headers != NGX_RL_HEADERS_OFF
        && ngx_rl_add_headers(r, ctx) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_next_header_filter(r);
}


/*
 * Runs for requests without a limit, or without headers, too: it needs no
 * stack, no registers.
 */
static ngx_int_t
ngx_rl_header_filter(ngx_http_request_t *r)
{
    ngx_rl_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_ratelimit_module);

    if (ctx ? (ctx->conf->headers == NGX_RL_HEADERS_OFF
               && !(ctx->needs & (NGX_RL_NEEDS_SETTLE |NGX_RL_NEEDS_STATUS)))
            : !(r->internal || r->filter_finalize))
    {
        return ngx_http_next_header_filter(r);
    }

    return ngx_rl_filter(r);
}


ngx_int_t
ngx_rl_headers_init(ngx_conf_t *cf)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_rl_header_filter;

    return NGX_OK;
}
