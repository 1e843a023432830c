/*
 * The lines of a request in the error log. A client can cause each of them
 * with every request. Each rejection has its line, at the operator's level. A
 * worker writes one line a second of every other kind, with the number of
 * lines that it left out.
 */

#include "ngx_rl_key.h"
#include "ngx_rl_request.h"

/* a rejection: it has no kind, since its lines are not limited */
#define NGX_RL_LOG_EACH  NGX_RL_LOG_KINDS

/* ", limit 5 in 60 s, burst 3, retry after 12 s" with the longest numbers */
#define NGX_RL_LOG_LIMIT_BYTES  128

typedef struct {
    const char   *what;   /* NULL: no line */
    ngx_rl_log_e  kind;
    ngx_uint_t    lower;  /* levels than a rejection's */
} ngx_rl_log_line_t;

/* by ngx_rl_status_e */
static const ngx_rl_log_line_t  ngx_rl_log_lines[] = {
    { NULL, NGX_RL_LOG_EACH, 0 },         /* BYPASSED */
    { NULL, NGX_RL_LOG_EACH, 0 },         /* PASSED */
    { "not delayed, dry run,", NGX_RL_LOG_NOT_DELAYED, 1 },
    { "not rejected, dry run,", NGX_RL_LOG_NOT_REJECTED, 0 },
    { "delayed", NGX_RL_LOG_DELAYED, 1 },
    { NULL, NGX_RL_LOG_EACH, 0 },         /* DEGRADED */
    { "not denied, dry run,", NGX_RL_LOG_NOT_DENIED, 0 },
    { "answered with 503, no answer from Redis,", NGX_RL_LOG_UNAVAILABLE, 0 },
    { "rejected", NGX_RL_LOG_EACH, 0 },
    { "denied", NGX_RL_LOG_EACH, 0 },
    { "penalized", NGX_RL_LOG_PENALIZED, 0 },
};


/* ", limit 5 in 60 s", and what the client has to wait. */
static ngx_str_t
ngx_rl_log_amount(const ngx_rl_check_t *check, u_char *out)
{
    u_char                  *p, *last;
    uint64_t                 tokens, seconds;
    ngx_int_t                retry_after;
    ngx_str_t                text;
    const ngx_rl_limit_t    *limit;
    const ngx_rl_counter_t  *counter;

    counter = check->decisive;
    limit = ngx_rl_counter_limit(counter);
    last = out + NGX_RL_LOG_LIMIT_BYTES;

    ngx_rl_limit_words(limit, &tokens, &seconds);

    p = ngx_slprintf(out, last, ", limit %uL", tokens);

    if (limit->algorithm != NGX_RL_CONCURRENCY) {
        p = ngx_slprintf(p, last, " in %uL s", seconds);
    }

    if (limit->algorithm == NGX_RL_LEAKY_BUCKET) {
        p = ngx_slprintf(p, last, ", burst %uD", limit->capacity - 1);
    }

    retry_after = ngx_rl_retry_after(counter);

    if (check->delay_us) {
        p = ngx_slprintf(p, last, ", for %uL ms", check->delay_us / 1000);

    } else if (retry_after == -1) {
        p = ngx_slprintf(p, last, ", no retry helps");

    } else if (retry_after) {
        p = ngx_slprintf(p, last, ", retry after %i s", retry_after);
    }

    text.data = out;
    text.len = p - out;

    return text;
}


void
ngx_rl_log_outcome(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    char                      note[NGX_RL_LOG_NOTE];
    u_char                    out[NGX_RL_LOG_LIMIT_BYTES];
    ngx_str_t                 key, limit;
    ngx_log_t                *log;
    ngx_uint_t                level;
    const ngx_rl_counter_t   *counter;
    const ngx_rl_penalty_t   *penalty;
    const ngx_rl_log_line_t  *line;

    line = &ngx_rl_log_lines[ctx->check.status];
    level = ctx->conf->log_level;
    log = r->connection->log;

    if (line->lower && level != NGX_LOG_INFO) {
        level++;
    }

    if (line->what == NULL || log->log_level < level) {
        return;
    }

    note[0] = '\0';

    if (line->kind != NGX_RL_LOG_EACH
        && !ngx_rl_request_log_due(r, line->kind, note))
    {
        return;
    }

    if (ctx->penalized) {
        penalty = ctx->penalized->penalty;

        if (ngx_rl_penalty_name(r, ctx->penalized, &key) != NGX_OK) {
            return;
        }

        ngx_log_error(level, log, 0,
                      "request %s by ratelimit penalty \"%V\" of zone \"%V\", "
                      "key \"%V\", retry after %uL s%s", line->what,
                      &penalty->id, &penalty->limiter->zone.name, &key,
                      ngx_rl_penalty_seconds(ctx), note);
        return;
    }

    if (ctx->check.status != NGX_RL_DENIED
        && ctx->check.status != NGX_RL_DENIED_DRY_RUN)
    {
        counter = ctx->check.decisive;
        key = counter->client->key;

        if (ngx_rl_key_name(r, &counter->rule->key, &key) != NGX_OK) {
            return;
        }

        limit = ngx_rl_log_amount(&ctx->check, out);

        ngx_log_error(level, log, 0,
                      "request %s by ratelimit rule \"%V\" of zone \"%V\", "
                      "key \"%V\"%V%s", line->what, &counter->rule->id,
                      &counter->client->limiter->zone.name, &key, &limit, note);
        return;
    }

    if (ctx->token) {
        ngx_log_error(level, log, 0,
            "request %s for its bearer token by ratelimit zone \"%V\": %s%s",
            line->what, &ctx->denies->zone.name, ctx->token, note);
        return;
    }

    key = r->connection->addr_text;

    if (ctx->key_denied
        && (ngx_rl_api_key_text(r, &key) != NGX_OK
            || ngx_rl_key_name(r, NULL, &key) != NGX_OK))
    {
        return;
    }

    ngx_log_error(level, log, 0,
        "request %s by the list of ratelimit zone \"%V\", key \"%V\"%s",
        line->what, &ctx->denies->zone.name, &key, note);
}
