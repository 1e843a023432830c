/*
 * A request on its way: its context, and the functions that select its
 * counters, check it, explain it, answer it and settle its cost.
 */

#ifndef NGX_RL_REQUEST_H_INCLUDED
#define NGX_RL_REQUEST_H_INCLUDED

#include "ngx_rl_http.h"

#include "ngx_rl_penalty.h"
#include "ngx_rl_text.h"

/* lines of the error log of which a worker writes one a second */
typedef enum {
    NGX_RL_LOG_NOT_DELAYED = 0,
    NGX_RL_LOG_NOT_REJECTED,
    NGX_RL_LOG_DELAYED,
    NGX_RL_LOG_NOT_DENIED,
    NGX_RL_LOG_UNAVAILABLE,
    NGX_RL_LOG_TOO_MANY,      /* rules */
    NGX_RL_LOG_LIMIT,         /* is none */
    NGX_RL_LOG_COST,          /* is none */
    NGX_RL_LOG_HEADER_COST,   /* of a response is none */
    NGX_RL_LOG_END_COST,      /* the same, at its end */
    NGX_RL_LOG_TOKEN,         /* is not valid */
    NGX_RL_LOG_REGEX,         /* that gave up */
    NGX_RL_LOG_EXPLAINED,
    NGX_RL_LOG_PENALIZED,
    NGX_RL_LOG_PENALTY,       /* begins */
    NGX_RL_LOG_NETWORK,       /* a penalty of one begins */
    NGX_RL_LOG_NO_PENALTY,    /* since there is no place */
    NGX_RL_LOG_REFUSED,       /* by a guard */
    NGX_RL_LOG_KINDS
} ngx_rl_log_e;

#define NGX_RL_KEY_SHA256      "sha256:"
#define NGX_RL_KEY_SHA256_LEN  (sizeof(NGX_RL_KEY_SHA256) - 1)

/* of a response: what is left, twice, two resets, Retry-After */
#define NGX_RL_NUMBERS_BYTES  (5 * NGX_INT64_LEN)

typedef struct ngx_rl_explain_s  ngx_rl_explain_t;
typedef struct ngx_rl_past_s     ngx_rl_past_t;

/* The response of an upstream that has redirected the request. */
struct ngx_rl_past_s {
    ngx_list_t     *headers;
    ngx_rl_past_t  *next;  /* before it, or NULL */
};

/* The key of a penalty that a request may come under. */
typedef struct {
    ngx_rl_penalty_t  *penalty;
    ngx_str_t          key;
    uint64_t           until_ms;   /* its end, see penalties.h; 0: it is not in
                                      force */
    ngx_uint_t         counted;    /* its event: the request has one */
    unsigned           address:1;  /* the key has the client's address */
    unsigned           network:1;  /* the key is a network, penalized */
} ngx_rl_penalty_key_t;


/*
 * The context of a request, made at its first limited location. It is found
 * again after an internal redirect by its cleanup in the request's pool.
 */
typedef struct {
    ngx_pool_cleanup_t   cleanup;     /* of the request's pool */
    ngx_http_request_t  *request;
    ngx_rl_loc_conf_t   *conf;        /* of the deciding location */
    ngx_rl_policy_t    **policies;    /* of conf->limits, each used */
    ngx_str_t            path;        /* that is checked */
    ngx_rl_readings_t    readings;    /* of it, if a template asks */
    u_char               numbers[NGX_RL_NUMBERS_BYTES];  /* of the headers */
    uint64_t             decided_ms;  /* since the epoch */
    ngx_rl_once_t       *once;        /* if needs has that bit */

    const char  *token;  /* where denies is set: why it is refused; NULL: it is
                            not */
    uint32_t     needs;  /* of the policies and of the location: bits; the
                            response until it is charged */

    /* zeroed from here on, see ctx_create() */
    ngx_rl_explain_t      *explain;       /* in place of the check; NULL: it is
                                             checked */
    ngx_rl_limiter_t      *denies;        /* its list has the client, or it is
                                             the first and the token is refused;
                                             NULL: none */
    ngx_rl_penalty_key_t  *penalized;     /* the request is under this penalty;
                                             NULL: none */
    ngx_array_t           *penalty_keys;  /* of these; or NULL */
    ngx_event_t           *timer;         /* of a delay, then of "cost_every=";
                                             NULL: none */
    ngx_rl_past_t         *past;          /* the last; or NULL */
    uint64_t               waited_ms;     /* for Redis */
    unsigned               started:1;     /* the check */
    unsigned               waiting:1;     /* for Redis, for the delay */
    unsigned               answered:1;
    unsigned               held:1;        /* its answer is held back: counts in
                                             *ctx_held() */
    unsigned               ends:1;        /* "cost_end=" is charged at the
                                             request's end */
    unsigned               every:1;       /* timer is of "cost_every=" */
    unsigned               key_denied:1;  /* the list has the API key */
    unsigned               by_network:1;  /* a key is, and is counted */
    unsigned               early:NGX_RL_MAX_COUNTERS;  /* counters whose client
                                                          has not waited:
                                                          bits */
    ngx_rl_check_t         check;
} ngx_rl_ctx_t;


/* whether a counter is why a request was rejected, or one of the reasons */
#define ngx_rl_rejects(counter)                                               \
    ((counter)->answer.retry_us && !(counter)->dry_run                        \
     && !ngx_rl_counter_unavailable(counter))

/*
 * Whether a counter has been asked, and it is known what is left. A counter
 * that stands in for Redis knows only when nothing is left.
 */
#define ngx_rl_has_answer(counter)                                            \
    ((counter)->source == NGX_RL_SOURCE_LOCAL                                 \
     || (counter)->source == NGX_RL_SOURCE_LEASE                              \
     || (counter)->source == NGX_RL_SOURCE_REDIS                              \
     || ((counter)->answer.retry_us                                           \
         && !ngx_rl_counter_unavailable(counter)))


/* calls inside the module then need no table of addresses */
#pragma GCC visibility push(hidden)

/*
 * ctx.c: the context, or NULL. An internal redirect clears r->ctx, so that
 * afterwards the pool's cleanup tells.
 */
ngx_rl_ctx_t *ngx_rl_ctx_find(ngx_http_request_t *r);

static ngx_inline ngx_rl_ctx_t *
ngx_rl_ctx(ngx_http_request_t *r)
{
    ngx_rl_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_ratelimit_module);

    return (ctx || !(r->internal || r->filter_finalize))
           ? ctx : ngx_rl_ctx_find(r);
}

/*
 * Makes the context, for the location's limits; the handler is the check's.
 * NULL: memory is out.
 */
ngx_rl_ctx_t *ngx_rl_ctx_create(ngx_http_request_t *r, ngx_rl_loc_conf_t *conf,
    void (*handler)(void *data));

/* The worker's answers that are held back; and one is not any more. */
#define ngx_rl_ctx_held(ctx)                                                  \
    (((ngx_rl_main_conf_t *)                                                  \
      ngx_http_get_module_main_conf((ctx)->request,                           \
                                    ngx_http_ratelimit_module))->held)

void ngx_rl_ctx_release(ngx_rl_ctx_t *ctx);

/*
 * The seconds to wait after a counter has rejected the request, rounded up. -1:
 * no retry helps.
 */
ngx_int_t ngx_rl_retry_after(const ngx_rl_counter_t *counter);

/* The rest of the request's penalty in seconds, rounded up, 1 at least. */
uint64_t ngx_rl_penalty_seconds(const ngx_rl_ctx_t *ctx);

/* The Unix time at which a counter is as if unused, rounded up to seconds. */
time_t ngx_rl_reset(ngx_rl_ctx_t *ctx, const ngx_rl_counter_t *counter);

/* How long ago the request was decided; 0: the clock was set back since. */
uint64_t ngx_rl_passed_us(const ngx_rl_ctx_t *ctx);

/*
 * Whether a line of this kind may be written now. If so, the line ends with
 * note, see ngx_rl_log_due().
 */
ngx_uint_t ngx_rl_request_log_due(ngx_http_request_t *r, ngx_rl_log_e kind,
    char note[NGX_RL_LOG_NOTE]);

/* Writes the line if it may be written, and the note behind it. */
void ngx_rl_request_log(ngx_http_request_t *r, ngx_rl_log_e kind,
    ngx_uint_t level, const char *fmt, ...);

/* The worker's state for the lines of this kind. */
#define ngx_rl_log_limit_of(r, kind)                                          \
    (&((ngx_rl_main_conf_t *)                                                 \
       ngx_http_get_module_main_conf(r, ngx_http_ratelimit_module))           \
      ->logs[kind])


/*
 * access.c: the handler in two phases. The location's "ratelimit_phase" says
 * in which one a request is checked; the second runs when access is granted.
 */
ngx_int_t ngx_rl_handler(ngx_http_request_t *r);

/* Called when the phases of a cycle are complete. */
void ngx_rl_phases_init(ngx_cycle_t *cycle);


/* The limit that a client has of a rule. */
typedef struct {
    const ngx_rl_limit_t      *limit;
    const ngx_rl_override_t   *override;   /* in force; NULL: none */
    const ngx_rl_override_t   *misfit;     /* one that does not fit the rule */
    ngx_rl_origin_e            origin;
    unsigned                   dynamic:1;  /* of a variable */
} ngx_rl_allowed_t;

/*
 * Functions that select() calls for a request that is explained. allowed: NULL,
 * the limit is the rule's.
 */
typedef struct {
    void   (*rule)(void *data, const ngx_rl_rule_t *rule, ngx_rl_match_e match,
                   const ngx_rl_counter_t *counter,
                   const ngx_rl_subject_t *subject,
                   const ngx_rl_allowed_t *allowed);
    void   (*listed)(void *data, const ngx_rl_limiter_t *limiter,
                     ngx_rl_listed_e listed);
    void    *data;
} ngx_rl_report_t;

/* How the selection ended: of all, of a zone, of a rule. */
typedef enum {
    NGX_RL_SELECT_OK = 0,
    NGX_RL_SELECT_SKIPPED,    /* the zone or the rule does not count it */
    NGX_RL_SELECT_FULL,       /* there is no room for it, nor for others */
    NGX_RL_SELECT_DENIED,
    NGX_RL_SELECT_PENALIZED,
    NGX_RL_SELECT_BAD_PATH,   /* as servers may read it, it matches too many */
    NGX_RL_SELECT_ERROR       /* memory is out */
} ngx_rl_selected_e;

/*
 * select.c: fills the context's check with the counters of the rules that
 * apply. If report is not NULL, it is called for each list that has the
 * request, then for each rule, with its counter or with why it does not apply.
 * Returns OK, DENIED, PENALIZED, BAD_PATH or ERROR.
 */
ngx_rl_selected_e ngx_rl_select(ngx_http_request_t *r, ngx_rl_ctx_t *ctx,
    ngx_rl_report_t *report);

/*
 * access.c, for a request that nginx does not know, but the endpoint: starts
 * its check as the handler does, with counters that are selected. Returns
 * NGX_OK: asked() follows. NGX_AGAIN: the context's handler is called once,
 * later, and asked() follows. NGX_ERROR: memory is out. Or a status.
 */
ngx_int_t ngx_rl_ask(ngx_http_request_t *r, ngx_rl_ctx_t *ctx,
    ngx_rl_selected_e selected);

/* Decides, and notes the outcome wherever a request's is noted. */
void ngx_rl_asked(ngx_http_request_t *r, ngx_rl_ctx_t *ctx, ngx_uint_t waited);

/*
 * Whether the request is under a penalty of the limiter, which ctx->penalized
 * then is: OK, PENALIZED or ERROR. It has the penalty's own key; or, if of is
 * not NULL, the given key alone, and only penalties that count by a key written
 * so matter.
 */
ngx_rl_selected_e ngx_rl_penalized(ngx_http_request_t *r, ngx_rl_ctx_t *ctx,
    const ngx_rl_limiter_t *limiter, const ngx_str_t *of, const ngx_str_t *key);

/*
 * Which of the policy's lists has the subject, or a key of a rule that the
 * lists name. Such a key says who the client is, whether or not its rule
 * applies. NGX_ERROR: of key_of().
 */
ngx_int_t ngx_rl_listed(const ngx_rl_policy_t *policy,
    const ngx_rl_subject_t *subject, ngx_rl_key_of_pt key_of, void *data,
    ngx_rl_listed_e *listed);

/*
 * Sets the limit that a rule allows the client, and the override: of the
 * allowance, or of the rule if that is NULL, and what overrides it for a time.
 * NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_allow(ngx_pool_t *pool, const ngx_rl_rule_t *rule,
    const ngx_rl_subject_t *subject, const ngx_str_t *key,
    const ngx_rl_allowance_t *allowance, ngx_rl_allowed_t *allowed);

/*
 * charge.c: the counters are known, and the request has an idempotency key, or
 * loses NGX_RL_NEEDS_ONCE. See ngx_rl_once_begin() and
 * _end(); end() does nothing without that bit.
 */
void ngx_rl_request_once_begin(ngx_http_request_t *r, ngx_rl_ctx_t *ctx,
    ngx_uint_t use);

static ngx_inline void
ngx_rl_request_once_end(ngx_rl_ctx_t *ctx, ngx_uint_t when)
{
    if (ctx->needs & NGX_RL_NEEDS_ONCE) {
        ngx_rl_once_end(&ctx->check, ctx->once, when);
    }
}

/* The tokens that the request which this one replays has paid a counter. */
static ngx_inline uint32_t
ngx_rl_request_once_paid(const ngx_rl_ctx_t *ctx,
    const ngx_rl_counter_t *counter)
{
    return (ctx->needs & NGX_RL_NEEDS_ONCE)
           ? ctx->once->paid[counter - ctx->check.counters] : 0;
}

/*
 * select.c: the name of a penalty's key in a log: a network's own, or a hash.
 * NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_penalty_name(ngx_http_request_t *r,
    const ngx_rl_penalty_key_t *entry, ngx_str_t *name);

/*
 * Counts the request's response with that status; or, if status is 0, that it
 * is rejected. May begin penalties.
 */
void ngx_rl_penalty_events(ngx_http_request_t *r, ngx_rl_ctx_t *ctx,
    ngx_uint_t status);

/*
 * charge.c: reads the cost from a variable. If that is empty or no number, the
 * cost stays as it is. One that is too large becomes the largest: nobody shall
 * pay less by asking for more. NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_charge_start(ngx_http_request_t *r, ngx_rl_counter_t *counter);

/*
 * Charges what the response says of the cost ("cost_header=", "count_status=")
 * and hides those headers. Called once, before the response's header is sent.
 */
void ngx_rl_charge_header(ngx_http_request_t *r, ngx_rl_ctx_t *ctx);

/* Redirected: the costs in its upstream's headers stay known. */
void ngx_rl_charge_redirected(ngx_http_request_t *r);

/* A response begins that may need "cost_every=". */
void ngx_rl_charge_every(ngx_http_request_t *r, ngx_rl_ctx_t *ctx);

/*
 * "cost_end=" is charged when the request ends. Called once or more. NGX_ERROR:
 * memory is out.
 */
ngx_int_t ngx_rl_charge_later(ngx_http_request_t *r, ngx_rl_ctx_t *ctx);

/* Whether a list of ngx_uint_t has the status. */
ngx_uint_t ngx_rl_has_status(const ngx_array_t *statuses, ngx_uint_t status);

/* The first header of that name, in any case, or NULL. */
ngx_table_elt_t *ngx_rl_find_header(ngx_list_t *headers, const ngx_str_t *name);


/*
 * answer.c: says when the client of a request that does not pass may come back,
 * before anything tells of it.
 */
void ngx_rl_retry(ngx_rl_ctx_t *ctx);

/* Answers a request that does not pass. Always NGX_DONE. */
ngx_int_t ngx_rl_reject(ngx_http_request_t *r, ngx_rl_ctx_t *ctx);

/*
 * observe.c, the lists of single clients for operators. The request is decided:
 * keeps a rejection, also one of a dry run, and some of the penalized requests.
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

/* answer.c: installs the header filter. */
ngx_int_t ngx_rl_headers_init(ngx_conf_t *cf);

/* variables.c: $ratelimit_status, by ngx_rl_status_e */
extern const ngx_str_t  ngx_rl_status_names[];

ngx_int_t ngx_rl_add_variables(ngx_conf_t *cf);


/* explain_json.c: "ratelimit_explain" */
char *ngx_rl_explain_conf(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* Whether the request has the header with one of the tokens. */
ngx_uint_t ngx_rl_explain_wanted(ngx_http_request_t *r,
    const ngx_array_t *tokens);

/*
 * Explains the request by the limits of its context. NGX_OK: send() may follow.
 * NGX_AGAIN: Redis is asked, and the handler of ctx->check will be called once.
 * NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_explain_start(ngx_http_request_t *r, ngx_rl_ctx_t *ctx);

/* Answers the request with the explanation and ends it: always NGX_DONE. */
ngx_int_t ngx_rl_explain_answer(ngx_http_request_t *r, ngx_rl_ctx_t *ctx);

/* The content handler that explains a request in a location without limits. */
ngx_int_t ngx_rl_explain_unlimited(ngx_http_request_t *r);

#pragma GCC visibility pop

#endif /* NGX_RL_REQUEST_H_INCLUDED */
