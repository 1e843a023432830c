/*
 * Checks a request in the access phase, or in the one behind it: once, at its
 * first limited location. The request is suspended while Redis is asked, and
 * while a leaky bucket delays it. It is allowed with NGX_DECLINED, since
 * NGX_OK would grant access under "satisfy any". What does not simply pass has
 * a line in the error log.
 */

#include "ngx_rl_key.h"
#include "ngx_rl_request.h"

/* of a worker's connections those whose answers may be held back: one in */
#define NGX_RL_HELD  8

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


/*
 * The check is complete, or the delay over. Called from the Redis connection's
 * event, where the request must not run, nor end: it goes on from an event of
 * its own.
 */
static void
ngx_rl_complete(ngx_rl_ctx_t *ctx)
{
    ngx_event_t  *wev;

    ctx->waiting = 0;

    wev = ctx->request->connection->write;
    ngx_post_event(wev, &ngx_posted_events);
}


static void
ngx_rl_delay_handler(ngx_event_t *ev)
{
    ngx_rl_complete(ev->data);
}


/* The write event's handler: also runs when the socket gets writable. */
static void
ngx_rl_resume(ngx_http_request_t *r)
{
    ngx_rl_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_ratelimit_module);

    if (ctx->waiting) {
        if (ngx_handle_write_event(r->connection->write, 0) != NGX_OK) {
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        }

        return;
    }

    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    ngx_http_core_run_phases(r);
}


static ngx_int_t
ngx_rl_suspend(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    ctx->waiting = 1;

    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_rl_resume;

    return NGX_AGAIN;
}


/*
 * The request goes on after ms. The timer is not cancelable: a worker that is
 * to end waits for it, as for the response.
 */
static ngx_int_t
ngx_rl_wait(ngx_http_request_t *r, ngx_rl_ctx_t *ctx, ngx_msec_t ms)
{
    ngx_event_t  *ev, *rev;

    ev = ngx_pcalloc(r->pool, sizeof(ngx_event_t));
    if (ev == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ev->data = ctx;
    ev->log = r->connection->log;
    ev->handler = ngx_rl_delay_handler;

    ctx->timer = ev;
    ngx_add_timer(ev, ms);

    /* a client that has left already causes no other event */

    rev = r->connection->read;

    if (rev->ready) {
        ngx_post_event(rev, &ngx_posted_events);
    }

    return ngx_rl_suspend(r, ctx);
}


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

    text = ngx_rl_str(out, p - out);

    return text;
}


/*
 * The line of a request that was rejected, delayed or tried. A client can cause
 * one with every request. Each rejection has its line, at the operator's level.
 * A worker writes one line a second of every other kind, with the number of
 * lines that it left out.
 */
static void
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


/*
 * Answers a request that does not pass: at once, or first holds the answer
 * back. A request whose answer is held back has been counted and logged.
 */
static ngx_int_t
ngx_rl_refuse(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    ngx_int_t                rc;
    const ngx_rl_penalty_t  *penalty;

    if (ctx->held) {
        ngx_rl_ctx_release(ctx);

    } else if (ctx->penalized) {
        penalty = ctx->penalized->penalty;

        if (penalty->action == NGX_RL_PENALTY_DELAY
            && *ngx_rl_ctx_held(ctx) < ngx_cycle->connection_n / NGX_RL_HELD)
        {
            (*ngx_rl_ctx_held(ctx))++;
            ctx->held = 1;

            rc = ngx_rl_wait(r, ctx, (ngx_msec_t) penalty->time.time_ms);

            if (ctx->timer == NULL) {
                ngx_rl_ctx_release(ctx);
            }

            return rc;
        }

    } else if (ctx->penalty_keys) {
        ngx_rl_penalty_events(r, ctx, 0);
    }

    return ngx_rl_reject(r, ctx);
}


/* A request that does not simply pass is counted and logged. */
static void
ngx_rl_note(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    ngx_uint_t       word;
    ngx_rl_check_t  *check;

    check = &ctx->check;

    /* a list or its token denies it, or would if it were no dry run */

    if (ctx->denies) {
        word = NGX_RL_COUNTS_DENIED;

        if (check->status != NGX_RL_DENIED) {
            check->status = NGX_RL_DENIED_DRY_RUN;
            word = NGX_RL_COUNTS_DENIED_DRY_RUN;
        }

        ngx_rl_count(ctx->denies->rows[NGX_RL_COUNTS_ZONE], word, 1);
    }

    if (ngx_rl_check_refused(check)) {
        ngx_rl_retry(ctx);
    }

    ngx_rl_log_outcome(r, ctx);
    ngx_rl_watch_outcome(r, ctx);
}


/* The same, and it is delayed or refused. */
static ngx_int_t
ngx_rl_notable(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    ngx_rl_check_t    *check;
    ngx_rl_limiter_t  *limiter;

    check = &ctx->check;

    ngx_rl_note(r, ctx);

    if (ngx_rl_check_refused(check)) {
        return ngx_rl_refuse(r, ctx);
    }

    /* also where another rule had no answer: DEGRADED */

    if (check->delay_us == 0) {
        return NGX_DECLINED;
    }

    limiter = check->decisive->client->limiter;
    ngx_rl_counts_time(limiter->rows[NGX_RL_COUNTS_DELAY], check->delay_us);

    return ngx_rl_wait(r, ctx, (ngx_msec_t) (check->delay_us / 1000));
}


static ngx_inline void
ngx_rl_decided(ngx_rl_ctx_t *ctx)
{
    ctx->answered = 1;
    ctx->decided_ms = ngx_rl_wall_ms();
}


static ngx_int_t
ngx_rl_outcome(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    ngx_rl_decided(ctx);

    if (ctx->check.status <= NGX_RL_PASSED && ctx->denies == NULL
        && ctx->explain == NULL)
    {
        return NGX_DECLINED;
    }

    return ctx->explain ? ngx_rl_explain_answer(r, ctx)
                        : ngx_rl_notable(r, ctx);
}


static void
ngx_rl_waited(ngx_rl_ctx_t *ctx)
{
    ctx->waited_ms = ngx_current_msec - ctx->check.taken_us / 1000;
    ngx_rl_check_complete(&ctx->check);
    ngx_rl_request_once_end(ctx, 0);
}


/* All counters have answered, or have been looked at to be explained. */
static void
ngx_rl_answered(void *data)
{
    ngx_rl_ctx_t *ctx = data;

    if (ctx->started) {
        ngx_rl_waited(ctx);
    }

    ngx_rl_complete(ctx);
}


/*
 * NGX_OK: the outcome is known. NGX_AGAIN: Redis is asked. NGX_ERROR: memory is
 * out. A status: too many rules match the path as servers may read it.
 */
static ngx_inline ngx_int_t
ngx_rl_request_check(ngx_http_request_t *r, ngx_rl_ctx_t *ctx,
    ngx_rl_selected_e selected)
{
    ngx_int_t          rc;
    ngx_rl_check_t    *check;
    ngx_rl_limiter_t  *limiter;

    check = &ctx->check;

    if (selected == NGX_RL_SELECT_ERROR) {
        return NGX_ERROR;
    }

    if (selected != NGX_RL_SELECT_OK) {

        /* no counter of the zones before is asked: none has an answer */

        check->ncounters = 0;

        if (selected == NGX_RL_SELECT_BAD_PATH) {
            return NGX_HTTP_BAD_REQUEST;
        }

        check->status = NGX_RL_DENIED;

        if (selected == NGX_RL_SELECT_PENALIZED) {
            limiter = ctx->penalized->penalty->limiter;

            check->status = NGX_RL_PENALIZED;
            ngx_rl_count(limiter->rows[NGX_RL_COUNTS_ZONE],
                         NGX_RL_COUNTS_PENALIZED, 1);
        }

        return NGX_OK;
    }

    ctx->started = 1;

    if (!(ctx->needs & (NGX_RL_NEEDS_ONCE|NGX_RL_NEEDS_RETRY))) {
        return ngx_rl_check_start(check);
    }

    if (ctx->needs & NGX_RL_NEEDS_ONCE) {
        ngx_rl_request_once_begin(r, ctx, 1);
    }

    /* a replay that costs nothing need not have waited */

    if (ctx->needs & NGX_RL_NEEDS_RETRY) {
        ctx->early = ngx_rl_retry_early(check);
    }

    rc = ctx->early ? ngx_rl_check_early(check, ctx->early)
                    : ngx_rl_check_start(check);

    if (rc == NGX_OK) {
        ngx_rl_request_once_end(ctx, 0);
    }

    return rc;
}


ngx_int_t
ngx_rl_ask(ngx_http_request_t *r, ngx_rl_ctx_t *ctx, ngx_rl_selected_e selected)
{
    return ngx_rl_request_check(r, ctx, selected);
}


void
ngx_rl_asked(ngx_http_request_t *r, ngx_rl_ctx_t *ctx, ngx_uint_t waited)
{
    if (waited) {
        ngx_rl_waited(ctx);
    }

    ngx_rl_decided(ctx);

    if (ctx->check.status > NGX_RL_PASSED || ctx->denies) {
        ngx_rl_note(r, ctx);
    }

    if (ngx_rl_check_refused(&ctx->check)) {
        ngx_rl_penalty_events(r, ctx, 0);
    }
}


/* Runs where the location checks requests in this phase. */
ngx_int_t
ngx_rl_handler(ngx_http_request_t *r)
{
    ngx_int_t           rc;
    ngx_uint_t          explain;
    ngx_rl_ctx_t       *ctx;
    ngx_rl_loc_conf_t  *conf;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    ctx = ngx_rl_ctx(r);

    if (ctx) {
        if (ctx->waiting) {
            return NGX_AGAIN;
        }

        if (ctx->held) {
            return ngx_rl_refuse(r, ctx);
        }

        if (ctx->answered) {
            return NGX_DECLINED;
        }

        return ngx_rl_outcome(r, ctx);
    }

    conf = ngx_http_get_module_loc_conf(r, ngx_http_ratelimit_module);

    /* the error page of a request that was refused access */

    if (conf->checks == NGX_RL_AFTER_AUTH
        && (r->err_status == NGX_HTTP_UNAUTHORIZED
            || r->err_status == NGX_HTTP_FORBIDDEN))
    {
        return NGX_DECLINED;
    }

    explain = conf->explain && ngx_rl_explain_wanted(r, conf->explain);

    if (!conf->limited) {
        /* in the content phase: "try_files" may lead to a location with some */

        if (explain) {
            r->content_handler = ngx_rl_explain_unlimited;
        }

        return NGX_DECLINED;
    }

    ctx = ngx_rl_ctx_create(r, conf, ngx_rl_answered);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = explain ? ngx_rl_explain_start(r, ctx)
                 : ngx_rl_request_check(r, ctx, ngx_rl_select(r, ctx, NULL));

    if (rc == NGX_OK) {
        return ngx_rl_outcome(r, ctx);
    }

    if (rc == NGX_AGAIN) {
        return ngx_rl_suspend(r, ctx);
    }

    ctx->answered = 1;

    return (rc == NGX_ERROR) ? NGX_HTTP_INTERNAL_SERVER_ERROR : rc;
}


static ngx_inline ngx_int_t
ngx_rl_next(ngx_http_request_t *r, ngx_http_phase_handler_t *ph)
{
    r->phase_handler++;
    ph++;

    return ph->checker(r, ph);
}


/* As nginx's own checkers, for what the handler returns. */
static ngx_inline ngx_int_t
ngx_rl_checker(ngx_http_request_t *r, ngx_http_phase_handler_t *ph,
    ngx_uint_t phase)
{
    ngx_int_t           rc;
    ngx_rl_loc_conf_t  *conf;

    if (phase == NGX_RL_BEFORE_AUTH && r->internal) {
        ngx_rl_charge_redirected(r);
    }

    conf = ngx_http_get_module_loc_conf(r, ngx_http_ratelimit_module);

    if (conf->checks != phase) {
        return ngx_rl_next(r, ph);
    }

    rc = ngx_rl_handler(r);

    if (rc == NGX_DECLINED) {
        return ngx_rl_next(r, ph);
    }

    if (rc != NGX_AGAIN && rc != NGX_DONE) {
        ngx_http_finalize_request(r, rc);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_rl_access_checker(ngx_http_request_t *r, ngx_http_phase_handler_t *ph)
{
    return ngx_rl_checker(r, ph, NGX_RL_BEFORE_AUTH);
}


static ngx_int_t
ngx_rl_precontent_checker(ngx_http_request_t *r, ngx_http_phase_handler_t *ph)
{
    return ngx_rl_checker(r, ph, NGX_RL_AFTER_AUTH);
}


/*
 * The phases are one list for all locations. A checker of ours calls the
 * handler only if the location checks requests in this phase, and goes on to
 * the next entry at once. Where nothing is checked it takes 8 instructions; a
 * handler that declines takes 43. nginx ends both phases with an entry of its
 * own, so there is always a next one.
 */
void
ngx_rl_phases_init(ngx_cycle_t *cycle)
{
    ngx_http_phase_handler_t   *ph;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_core_module);

    for (ph = cmcf->phase_engine.handlers; ph->checker; ph++) {

        if (ph->handler == ngx_rl_handler) {
            ph->checker = (ph->checker == ngx_http_core_access_phase)
                          ? ngx_rl_access_checker : ngx_rl_precontent_checker;
        }
    }
}
