/*
 * "POST /check": another program asks for a decision. It names a rule and a
 * key, or describes a request; it may ask for several at once. Each is a check
 * as a request has it, with the zone's counters, and waits for Redis as that
 * does. With "atomic" several counters of a client are one check: it takes all
 * of them, or none.
 */

#include "ngx_rl_api.h"

#include "ngx_rl_read_json.h"

#define NGX_RL_CHECKS       100
#define NGX_RL_CHECK_BYTES  65536   /* of the body: no thread reads it */

typedef struct ngx_rl_checks_s  ngx_rl_checks_t;

/* What is asked. */
typedef struct {
    ngx_rl_checks_t      *all;
    ngx_rl_api_client_t   client;     /* without a rule: a request's */
    ngx_str_t             keys[NGX_RL_MAX_PARTS];
    ngx_rl_allowance_t    own;
    int64_t               cost;       /* -1: not said, as those below */
    int64_t               limit;
    int64_t               window_ms;
    json_t               *described;  /* a request; NULL: by a key */
    ngx_http_request_t   *request;
    ngx_rl_ctx_t         *ctx;        /* if atomic, of all */
    ngx_rl_counter_t     *counter;    /* of the rule; NULL: none */
    unsigned              waiting:1;  /* for Redis */
} ngx_rl_asked_t;

/* In the request's pool. */
struct ngx_rl_checks_s {
    ngx_rl_api_t       *api;
    json_t             *json;       /* the body, whose texts are in use */
    ngx_uint_t          n;
    ngx_rl_asked_t     *asked;
    json_t             *atomic;     /* or NULL */
    ngx_uint_t          pending;    /* that wait */
    ngx_rl_problems_t   problems;
};


static void
ngx_rl_check_rule(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_asked_t *asked = data;

    ngx_str_t         id;
    ngx_uint_t        i;
    ngx_rl_rule_t   **rules;
    ngx_rl_policy_t  *policy;

    id = ngx_rl_document_text(value);
    policy = asked->all->api->conf->limiter->policy;
    rules = policy->rules.elts;

    for (i = 0; i < policy->rules.nelts; i++) {
        if (ngx_rl_equal(&rules[i]->id, &id)) {
            asked->client.rule = rules[i];
            return;
        }
    }

    ngx_rl_read_problem(reader, "there is no such rule");
}


static void
ngx_rl_check_key(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_asked_t *asked = data;

    ngx_str_t  *key;

    key = &asked->keys[asked->client.nkeys++];
    *key = ngx_rl_document_text(value);

    if (ngx_rl_policy_hashed(key)) {
        ngx_rl_read_problem(reader, "must be the key as clients send it: a "
                            "counter is not found by the hash of its key");
    }
}


static void
ngx_rl_check_tokens(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    (void) ngx_rl_read_number(reader, value, 0, NGX_RL_MAX_TOKENS, data);
}


static void
ngx_rl_check_window(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    (void) ngx_rl_read_number(reader, value, 1, (int64_t) 366 * 86400 * 1000,
                              data);
}


static void
ngx_rl_check_tier(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_asked_t *asked = data;

    asked->client.tier = ngx_rl_document_text(value);
}


/* Sets a header of the described request, or its member of this name. */
static void
ngx_rl_check_part(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_asked_t *asked = data;

    ngx_int_t    rc;
    ngx_str_t    name, text;
    const char  *wrong;

    name = ngx_rl_read_name(reader);
    text = ngx_rl_document_text(value);

    rc = ngx_rl_api_request_set(asked->all->api, asked->request,
             ngx_strcmp(reader->at->up->name, "headers") == 0, &name, &text,
             &wrong);

    if (rc == NGX_ERROR) {
        reader->failed = 1;

    } else if (rc != NGX_OK) {
        ngx_rl_read_problem(reader, "%s", wrong);
    }
}


static const ngx_rl_member_t  ngx_rl_check_request[] = {
    { "method", NGX_RL_IS_TEXT, .read = ngx_rl_check_part },
    { "path", NGX_RL_IS_TEXT, .read = ngx_rl_check_part },
    { "host", NGX_RL_IS_TEXT, .read = ngx_rl_check_part },
    { "address", NGX_RL_IS_TEXT, .read = ngx_rl_check_part },
    { "headers", NGX_RL_IS_OBJECT, .most = 100, .each = NGX_RL_IS_TEXT,
      .read = ngx_rl_check_part },
    { .name = NULL }
};

static const ngx_rl_member_t  ngx_rl_check_members[] = {
    { "rule", NGX_RL_IS_TEXT, .read = ngx_rl_check_rule },
    { "key", NGX_RL_IS_TEXT|NGX_RL_IS_ARRAY, .most = NGX_RL_MAX_PARTS,
      .each = NGX_RL_IS_TEXT, .read = ngx_rl_check_key },
    { "cost", NGX_RL_IS_NUMBER, .read = ngx_rl_check_tokens,
      .offset = offsetof(ngx_rl_asked_t, cost) },
    { "limit", NGX_RL_IS_NUMBER, .read = ngx_rl_check_tokens,
      .offset = offsetof(ngx_rl_asked_t, limit) },
    { "window_ms", NGX_RL_IS_NUMBER, .read = ngx_rl_check_window,
      .offset = offsetof(ngx_rl_asked_t, window_ms) },
    { "tier", NGX_RL_IS_TEXT, .read = ngx_rl_check_tier },
    { "request", NGX_RL_IS_OBJECT|NGX_RL_IS_KEPT,
      .offset = offsetof(ngx_rl_asked_t, described),
      .members = ngx_rl_check_request },
    { .name = NULL }
};


/* The limit and the window, in place of the variable's value. */
static void
ngx_rl_check_own(ngx_rl_reader_t *reader, ngx_rl_asked_t *asked)
{
    const char      *expected;
    ngx_uint_t       periodic;
    ngx_rl_spec_t   *spec;

    spec = &asked->own.spec;
    *spec = asked->client.rule->spec;
    periodic = (spec->calendar == 0 && spec->algorithm != NGX_RL_CONCURRENCY);

    if (!asked->client.rule->dynamic || asked->limit == -1
        || (asked->window_ms != -1 && !periodic)
        || (asked->window_ms == -1 && periodic && spec->period_us == 0))
    {
        ngx_rl_read_wrong(reader, NULL, "limit", "expected %s",
            !asked->client.rule->dynamic
            ? "none: the rule's limit comes from no variable"
            : periodic ? "\"limit\" and \"window_ms\""
                       : "\"limit\" without \"window_ms\"");
        return;
    }

    spec->tokens = asked->limit ? (uint64_t) asked->limit
                                : ngx_rl_limit_word((u_char *) "0", 1);

    if (asked->window_ms != -1) {
        spec->period_us = (uint64_t) asked->window_ms * 1000;
    }

    expected = ngx_rl_limit_init(&asked->own.limit, spec);

    if (expected) {
        ngx_rl_read_wrong(reader, NULL, "limit", "expected %s", expected);
        return;
    }

    asked->client.own = &asked->own;
}


/* Finds the client, once the rule and its key are read. */
static void
ngx_rl_check_client(ngx_rl_reader_t *reader, ngx_rl_asked_t *asked)
{
    ngx_str_t             address;
    ngx_uint_t            n;
    ngx_rl_rule_t        *rule;
    ngx_rl_api_t         *api;
    struct sockaddr_in6  *sin6;
    ngx_rl_api_client_t  *client;

    static const ngx_str_t  binary = ngx_string("$binary_remote_addr");

    api = asked->all->api;
    client = &asked->client;
    rule = client->rule;
    n = ngx_max(rule->nparts, 1);

    if (client->nkeys != n) {
        ngx_rl_read_wrong(reader, NULL, "key", "must have %ui part(s), as the "
                          "rule's key", n);
        return;
    }

    if (ngx_rl_policy_join(client->keys, n, api->request->pool, &client->key)
        != NGX_OK)
    {
        reader->failed = 1;
        return;
    }

    if (client->key.len == 0) {
        ngx_rl_read_wrong(reader, NULL, "key",
                          "must not be empty: such a key is not counted");
        return;
    }

    if (ngx_rl_equal(&rule->key, &binary)) {
        if (ngx_rl_api_query_address(api, &client->key, &address) != NGX_OK) {
            ngx_rl_read_wrong(reader, NULL, "key", "must be an address");
            return;
        }

        client->key = address;
    }

    if (asked->limit != -1 || asked->window_ms != -1) {
        ngx_rl_check_own(reader, asked);
    }

    if (reader->problems->n) {
        return;
    }

    if (ngx_rl_api_client(client) != NGX_OK) {
        reader->failed = 1;

    } else if (client->unknown == ngx_rl_api_by_variable) {
        ngx_rl_read_wrong(reader, NULL, "limit",
                          "is missing: the rule has it from a variable");

    } else if (client->unknown) {
        ngx_rl_read_wrong(reader, NULL, "tier", "is missing: "
                          "\"ratelimit_tier\" differs between locations");
    }

    /* a penalty may be the network's */

    if (client->subject.addressed) {
        sin6 = (struct sockaddr_in6 *) asked->request->connection->sockaddr;
        sin6->sin6_family = AF_INET6;
        ngx_memcpy(&sin6->sin6_addr, client->subject.address, NGX_RL_ADDRESS);
    }
}


/* Reads one check. No check begins before all of them are read. */
static void
ngx_rl_check_read(ngx_rl_reader_t *reader, json_t *value, void *data)
{
    ngx_rl_checks_t *all = data;

    ngx_rl_asked_t  *asked;

    asked = &all->asked[all->n++];
    asked->all = all;
    asked->client.api = all->api;
    asked->client.keys = asked->keys;
    asked->cost = -1;
    asked->limit = -1;
    asked->window_ms = -1;

    asked->request = ngx_rl_api_request(all->api);
    if (asked->request == NULL) {
        reader->failed = 1;
        return;
    }

    ngx_rl_read_members(reader, value, ngx_rl_check_members, asked);

    if (asked->described ? json_object_size(value) != 1
        : (json_object_get(value, "rule") == NULL
           || json_object_get(value, "key") == NULL))
    {
        ngx_rl_read_problem(reader, "expected \"rule\" and \"key\", or "
                            "\"request\" alone");

    } else if (asked->client.rule && reader->problems->n == 0) {
        ngx_rl_check_client(reader, asked);
    }
}


static const ngx_rl_member_t  ngx_rl_check_several[] = {
    { "checks", NGX_RL_IS_ARRAY, .most = NGX_RL_CHECKS,
      .each = NGX_RL_IS_OBJECT, .read = ngx_rl_check_read },
    { "atomic", NGX_RL_IS_BOOLEAN|NGX_RL_IS_KEPT,
      .offset = offsetof(ngx_rl_checks_t, atomic) },
    { .name = NULL }
};


/* Several that are one check: of one client, and each of another rule. */
static void
ngx_rl_check_atomic(ngx_rl_reader_t *reader, ngx_rl_checks_t *all)
{
    ngx_uint_t       i, j;
    ngx_rl_asked_t  *asked;

    asked = all->asked;

    if (all->n > NGX_RL_MAX_COUNTERS) {
        ngx_rl_read_wrong(reader, NULL, "checks", "must be at most %d if they "
                          "are atomic", NGX_RL_MAX_COUNTERS);
        return;
    }

    for (i = 0; i < all->n; i++) {
        for (j = 0; j < i; j++) {
            if (asked[j].client.rule == asked[i].client.rule) {
                break;
            }
        }

        if (asked[i].described || j < i         /* NOLINT(clang-analyzer-*) */
            || !ngx_rl_equal(&asked[i].client.key, &asked[0].client.key))
        {
            ngx_rl_read_wrong(reader, NULL, "atomic", "expected checks of one "
                              "key, each of another rule");
            return;
        }
    }
}


/* NGX_DECLINED: all is read; or it is answered. */
static ngx_int_t
ngx_rl_checks_read(ngx_rl_checks_t *all)
{
    size_t            n;
    json_t           *list;
    ngx_rl_api_t     *api;
    ngx_rl_place_t    root;
    ngx_rl_reader_t   reader;

    api = all->api;

    ngx_memzero(&root, sizeof(ngx_rl_place_t));
    ngx_memzero(&reader, sizeof(ngx_rl_reader_t));
    reader.at = &root;
    reader.limiter = api->conf->limiter;
    reader.policy = reader.limiter->policy;
    reader.pool = api->request->pool;
    reader.temp = reader.pool;
    reader.problems = &all->problems;
    reader.written = 1;

    if (ngx_rl_problems_init(&all->problems, reader.pool) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    all->json = ngx_rl_document_parse(&api->body.text, &all->problems);
    list = json_object_get(all->json, "checks");

    if (list) {
        n = ngx_min(json_array_size(list), NGX_RL_CHECKS);
        all->asked = ngx_rl_read_alloc(&reader, reader.pool,
                                       n * sizeof(ngx_rl_asked_t));
        if (all->asked) {
            ngx_rl_read_members(&reader, all->json, ngx_rl_check_several, all);
        }

        if (all->n == 0 && all->problems.n == 0) {
            ngx_rl_read_wrong(&reader, NULL, "checks", "must not be empty");
        }

        if (json_is_true(all->atomic) && all->problems.n == 0) {
            ngx_rl_check_atomic(&reader, all);
        }

    } else if (all->json
               && ngx_rl_read_is(&reader, all->json, NGX_RL_IS_OBJECT))
    {
        all->asked = ngx_rl_read_alloc(&reader, reader.pool,
                                       sizeof(ngx_rl_asked_t));
        if (all->asked) {
            ngx_rl_check_read(&reader, all->json, all);
        }
    }

    if (all->problems.n) {
        api->problems = &all->problems;
        return ngx_rl_api_problem(api, 422, "invalid",
                                  "the check is not valid; nothing is taken");
    }

    return (reader.failed || all->json == NULL) ? NGX_HTTP_INTERNAL_SERVER_ERROR
                                                : NGX_DECLINED;
}


/*
 * Adds the rule's counter to the check, or none. The rule was named, so it need
 * not match anything; but one that limits no request limits no check.
 */
static ngx_rl_selected_e
ngx_rl_check_select(ngx_rl_asked_t *asked, ngx_rl_ctx_t *ctx)
{
    ngx_rl_rule_t        *rule;
    ngx_rl_match_e        match;
    ngx_rl_check_t       *check;
    ngx_rl_client_t      *client;
    ngx_rl_counter_t     *counter;
    ngx_rl_limiter_t     *limiter;
    ngx_rl_selected_e     selected;
    ngx_rl_api_client_t  *by;

    by = &asked->client;
    rule = by->rule;
    limiter = by->api->conf->limiter;
    by->subject.log_limit = ngx_rl_log_limit_of(by->api->request,
                                                NGX_RL_LOG_REGEX);

    if (by->listed == NGX_RL_LISTED_DENIED) {
        ctx->denies = limiter;
        ctx->token = NULL;

        /* the log names it as a client's address */

        ctx->request->connection->addr_text = by->key;

        if (ngx_rl_key_name(ctx->request, &rule->key,
                            &ctx->request->connection->addr_text)
            != NGX_OK)
        {
            return NGX_RL_SELECT_ERROR;
        }

        if (!ctx->conf->dry_run) {
            return NGX_RL_SELECT_DENIED;
        }
    }

    if (by->listed == NGX_RL_LISTED_ALLOWED) {
        return NGX_RL_SELECT_OK;
    }

    if (!ctx->conf->dry_run) {
        selected = ngx_rl_penalized(ctx->request, ctx, limiter, &rule->key,
                                    &by->key);

        if (selected != NGX_RL_SELECT_OK) {
            return selected;
        }
    }

    match = ngx_rl_rule_match(rule, 1, &by->subject);

    if (match == NGX_RL_SKIPPED || match == NGX_RL_DISABLED
        || match == NGX_RL_NOT_ACTIVE || by->allowed.limit->unlimited
        || !ngx_rl_rule_percent(rule, &by->key))
    {
        return NGX_RL_SELECT_OK;
    }

    check = &ctx->check;

    for (client = check->clients;
         client < check->clients + check->nclients
         && client->key_index != rule->key_index;
         client++)
    {
        /* void */
    }

    if (client == check->clients + check->nclients) {
        check->nclients++;

        ngx_memzero(client, offsetof(ngx_rl_client_t, local));
        client->limiter = limiter;
        client->check = check;
        client->key = by->key;
        client->key_index = rule->key_index;

        if (ngx_rl_watch_due(limiter->watch, NGX_RL_WATCH_REQUESTS)) {
            ngx_rl_watch_sample(client, rule, NGX_RL_WATCH_REQUESTS);
        }
    }

    counter = &check->counters[check->ncounters++];
    asked->counter = counter;

    ngx_memzero(counter, offsetof(ngx_rl_counter_t, answer));
    counter->rule = rule;
    counter->limit = by->allowed.limit;
    counter->client = client;
    counter->cost = (asked->cost == -1) ? rule->cost : (uint32_t) asked->cost;
    counter->dry_run = (u_char) (rule->dry_run | ctx->conf->dry_run);

    if (limiter->redis) {
        counter->fail_mode = ngx_rl_rule_fail_mode(rule, ctx->conf->fail_mode);
    }

    /* as "look" of a location */

    if (counter->cost == 0) {
        counter->peek = 1;
        counter->fail_mode = NGX_RL_FAIL_OPEN;
    }

    return NGX_RL_SELECT_OK;
}


/* Called once, from an event of Redis. */
static void
ngx_rl_check_handler(void *data)
{
    ngx_rl_asked_t *asked = data;

    asked->waiting = 0;
    ngx_rl_asked(asked->request, asked->ctx, 1);

    if (--asked->all->pending == 0) {
        ngx_rl_api_wake(asked->all->api, &ngx_posted_events);
    }
}


/* Starts the check of n that are asked. NGX_ERROR: memory is out. */
static ngx_int_t
ngx_rl_check_start_one(ngx_rl_asked_t *asked, ngx_uint_t n)
{
    ngx_int_t          rc;
    ngx_uint_t         i;
    ngx_rl_ctx_t      *ctx;
    ngx_rl_selected_e  selected;

    ctx = ngx_rl_ctx_create(asked->request,
                            &asked->all->api->conf->checks[n > 1],
                            ngx_rl_check_handler);
    if (ctx == NULL) {
        return NGX_ERROR;
    }

    ctx->check.data = asked;
    selected = NGX_RL_SELECT_OK;

    if (asked->described) {
        selected = ngx_rl_select(asked->request, ctx, NULL);
    }

    for (i = 0; i < n; i++) {
        asked[i].ctx = ctx;

        if (asked->described == NULL && selected == NGX_RL_SELECT_OK) {
            ctx->needs &= ~NGX_RL_NEEDS_ONCE;
            selected = ngx_rl_check_select(&asked[i], ctx);
        }
    }

    rc = ngx_rl_ask(asked->request, ctx, selected);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == NGX_AGAIN) {
        asked->waiting = 1;
        asked->all->pending++;
        return NGX_OK;
    }

    /* a path of which servers may make too many others gets 400 from nginx */

    if (rc != NGX_OK) {
        ctx->check.status = NGX_RL_DENIED;
        return NGX_OK;
    }

    ngx_rl_asked(asked->request, ctx, 0);

    return NGX_OK;
}


/* In seconds. -1: no retry helps. */
static ngx_int_t
ngx_rl_check_retry(const ngx_rl_asked_t *asked, const ngx_rl_counter_t *counter)
{
    if (asked->ctx->penalized) {
        return (ngx_int_t) ngx_rl_penalty_seconds(asked->ctx);
    }

    if (counter == NULL) {
        return ngx_rl_check_refused(&asked->ctx->check) ? -1 : 0;
    }

    return ngx_rl_retry_after(counter);
}


/* The counter that the answer tells of, or NULL. */
static const ngx_rl_counter_t *
ngx_rl_check_counter(const ngx_rl_asked_t *asked)
{
    const ngx_rl_check_t  *check;

    check = &asked->ctx->check;

    /* a check that is refused without a counter has none any more */

    if (check->ncounters == 0 || asked->described == NULL) {
        return check->ncounters ? asked->counter : NULL;
    }

    return check->strictest ? check->strictest : check->decisive;
}


/* NULL: memory is out. */
static json_t *
ngx_rl_check_json(const ngx_rl_asked_t *asked)
{
    json_t                  *json;
    uint64_t                 reset_ms;
    ngx_int_t                retry;
    ngx_uint_t               known;
    const ngx_rl_ctx_t      *ctx;
    const ngx_rl_rule_t     *rule;
    const ngx_rl_limit_t    *limit;
    const ngx_rl_counter_t  *counter;

    ctx = asked->ctx;
    counter = ngx_rl_check_counter(asked);
    limit = counter ? ngx_rl_counter_limit(counter) : NULL;
    rule = counter ? counter->rule : asked->client.rule;
    known = (counter && ngx_rl_has_answer(counter));
    retry = ngx_rl_check_retry(asked, counter);
    reset_ms = known ? (counter->answer.reset_us + 999) / 1000 : 0;

    json = json_pack("{s:b, s:o, s:o, s:o, s:o, s:o, s:b, s:o}",
        "allowed", !ngx_rl_check_refused(&ctx->check),
        "limit", limit ? json_integer(limit->capacity) : json_null(),
        "remaining", known ? json_integer(ngx_rl_counter_remaining(counter))
                           : json_null(),
        "reset_ms", (known && limit && limit->algorithm != NGX_RL_CONCURRENCY)
                    ? json_integer((json_int_t) reset_ms) : json_null(),
        "retry_after_s", (retry == -1) ? json_null() : json_integer(retry),
        "rule", ngx_rl_json_name(rule ? &rule->id : NULL),
        "degraded", counter && counter->source == NGX_RL_SOURCE_FALLBACK,
        "status", ngx_rl_json_text(&ngx_rl_status_names[ctx->check.status]));

    if (ctx->check.delay_us) {
        ngx_rl_json_set(&json, "delay_ms",
            json_integer((json_int_t) (ctx->check.delay_us / 1000)));
    }

    if (ctx->penalized) {
        ngx_rl_json_set(&json, "penalty",
                        ngx_rl_json_text(&ctx->penalized->penalty->id));
    }

    return json;
}


/* All checks are over. */
static ngx_int_t
ngx_rl_checks_answer(ngx_rl_api_t *api)
{
    u_char           *p;
    json_t           *json, *list;
    ngx_int_t         retry, longest;
    ngx_uint_t        i, refused;
    ngx_rl_asked_t   *asked;
    ngx_rl_checks_t  *all;

    all = api->data;
    json = NULL;
    list = json_object_get(all->json, "checks") ? json_array() : NULL;
    refused = 0;
    longest = 0;

    for (i = 0; i < all->n; i++) {
        asked = &all->asked[i];
        json = ngx_rl_check_json(asked);

        if (list) {
            ngx_rl_json_append(&list, json);
        }

        if (ngx_rl_check_refused(&asked->ctx->check)) {
            retry = ngx_rl_check_retry(asked, ngx_rl_check_counter(asked));
            longest = (retry == -1 || longest == -1) ? -1
                                                     : ngx_max(longest, retry);
            refused = 1;
        }
    }

    if (json_object_get(all->json, "checks")) {
        json = json_pack("{s:b, s:o}", "allowed", !refused, "checks", list);
    }

    refused = (refused && api->args.status.len);

    if (refused && longest > 0) {
        p = ngx_pnalloc(api->request->pool, NGX_INT_T_LEN + 1);

        if (p == NULL) {
            json_decref(json);
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        ngx_sprintf(p, "%i%Z", longest);
        ngx_rl_api_header(api, "Retry-After", (char *) p);
    }

    return ngx_rl_api_json(api, refused ? NGX_HTTP_TOO_MANY_REQUESTS
                                        : NGX_HTTP_OK, json);
}


/* Ends the checks that still wait. */
static void
ngx_rl_checks_forget(void *data)
{
    ngx_rl_checks_t *all = data;

    ngx_uint_t       i;
    ngx_rl_asked_t  *asked;

    for (i = 0; i < all->n; i++) {
        asked = &all->asked[i];

        if (asked->waiting) {
            asked->waiting = 0;
            asked->ctx->started = 0;
            ngx_rl_check_end(&asked->ctx->check);
        }
    }
}


/* Behind the cleanups of the contexts, which have left what waited. */
static void
ngx_rl_checks_cleanup(void *data)
{
    ngx_rl_checks_t *all = data;

    all->api->forget = NULL;
    json_decref(all->json);
}


ngx_int_t
ngx_rl_api_check(ngx_rl_api_t *api)
{
    ngx_int_t            rc;
    ngx_uint_t           i, n;
    ngx_rl_checks_t     *all;
    ngx_pool_cleanup_t  *cln;

    static const ngx_str_t  status = ngx_string("429");

    if (api->args.status.data && !ngx_rl_equal(&api->args.status, &status)) {
        return ngx_rl_api_problem(api, NGX_HTTP_BAD_REQUEST, "invalid",
                                  "expected \"status=429\"");
    }

    if (api->body.text.len > NGX_RL_CHECK_BYTES) {
        return ngx_rl_api_problem(api, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
            "too-large", "expected a body of at most %d bytes",
            NGX_RL_CHECK_BYTES);
    }

    cln = ngx_pool_cleanup_add(api->request->pool, sizeof(ngx_rl_checks_t));
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    all = cln->data;
    ngx_memzero(all, sizeof(ngx_rl_checks_t));
    all->api = api;
    cln->handler = ngx_rl_checks_cleanup;

    rc = ngx_rl_checks_read(all);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    api->forget = ngx_rl_checks_forget;
    api->data = all;
    api->next = ngx_rl_checks_answer;

    for (i = 0; i < all->n; i += n) {
        n = json_is_true(all->atomic) ? all->n : 1;

        if (ngx_rl_check_start_one(&all->asked[i], n) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    return all->pending ? NGX_BUSY : ngx_rl_checks_answer(api);
}
