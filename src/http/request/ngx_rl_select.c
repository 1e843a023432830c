/*
 * Which counters a request meets: who the client is, the lists that have it,
 * the penalties that it is under, and the rules of its location that apply,
 * each with the key it counts by, its limit, and what the request costs. And
 * which outcomes of a request begin a penalty.
 */

#include "ngx_rl_key.h"
#include "ngx_rl_request.h"

#include "ngx_rl_route.h"

/* matching rules of a path that need no allocation */
#define NGX_RL_FOUND  64

/* of the network that "new_keys=" counts */
#define NGX_RL_NETWORK_V4  24
#define NGX_RL_NETWORK_V6  56

/* State of the selection of one request's rules. */
typedef struct {
    ngx_http_request_t       *request;
    ngx_rl_ctx_t             *ctx;
    ngx_rl_limiter_t         *limiter;
    ngx_rl_policy_t          *policy;
    ngx_rl_report_t          *report;  /* NULL: nobody asks */
    ngx_rl_match_e            match;   /* of the last rule, which is skipped */
    ngx_rl_location_limit_t  *of;      /* what the location says */
    ngx_uint_t                nfree;   /* rules of the zone that have no limit,
                                          and a group */
    ngx_rl_rule_t            *free[NGX_RL_MAX_COUNTERS];

    /* where a policy needs them */
    u_char           *listed;   /* ngx_rl_listed_e, by the location's limits;
                                   NULL: no list has the client */
    ngx_str_t         tier;     /* by the location */
    ngx_rl_subject_t  subject;
    ngx_rl_allowed_t  allowed;  /* of the last rule with NEEDS_LIMIT */
    ngx_rl_rule_t    *rules[NGX_RL_FOUND];
} ngx_rl_selection_t;

/* with one of these, who the client is matters beside the keys of rules */
#define NGX_RL_NEEDS_CLIENT                                                   \
    (NGX_RL_NEEDS_SUBJECT|NGX_RL_NEEDS_PENALTY|NGX_RL_NEEDS_TOKEN             \
     |NGX_RL_NEEDS_REPORT)

/* in a dry run it goes on */
#define ngx_rl_select_refused(s)                                              \
    ((s)->ctx->denies && !(s)->ctx->conf->dry_run)

#define ngx_rl_select_seen(s)                                                 \
    ((s)->ctx->needs & (NGX_RL_NEEDS_SUBJECT|NGX_RL_NEEDS_REPORT))

/*
 * Whether the zone's rules are found by the path. A report names the rules that
 * the path excludes, too.
 */
#define ngx_rl_select_by_path(s)                                              \
    (((s)->policy->needs & NGX_RL_NEEDS_ROUTE)                                \
     && (s)->of->number == NGX_RL_ALL && (s)->report == NULL)


/*
 * Whether a deny list has the client's address. A request that is explained, or
 * a dry run, goes on to the lists.
 */
static ngx_uint_t
ngx_rl_select_network(ngx_rl_selection_t *s)
{
    ngx_uint_t         i;
    ngx_rl_policy_t  **policies;

    policies = s->ctx->policies;

    ngx_memzero(&s->subject, sizeof(ngx_rl_subject_t));
    s->subject.addressed = ngx_rl_client_address(s->request,
                                                 s->subject.address);

    for (i = 0; i < s->ctx->conf->limits->nelts; i++) {

        if ((policies[i]->needs & NGX_RL_NEEDS_LISTS)
            && ngx_rl_policy_listed(policies[i], &s->subject, ngx_time())
               == NGX_RL_LISTED_DENIED)
        {
            if (s->report == NULL && !s->ctx->conf->dry_run) {
                s->ctx->denies = policies[i]->limiter;
                s->ctx->token = NULL;
            }

            return 1;
        }
    }

    return 0;
}


/*
 * The API key and the address are only looked for where a policy asks for
 * them.
 */
static ngx_rl_selected_e
ngx_rl_select_subject(ngx_rl_selection_t *s)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;
    ngx_rl_subject_t    *subject;
    ngx_rl_loc_conf_t   *conf;

    r = s->request;
    conf = s->ctx->conf;
    subject = &s->subject;
    subject->log_limit = ngx_rl_log_limit_of(r, NGX_RL_LOG_REGEX);

    subject->method = r->method;
    subject->path = s->ctx->path;
    subject->readings = &s->ctx->readings;
    subject->host = r->headers_in.server;
    subject->log = r->connection->log;
    subject->api_key.len = 0;
    subject->digested = 0;
    subject->addressed = (s->ctx->needs & NGX_RL_NEEDS_ADDRESS)
                         && ngx_rl_client_address(r, subject->address);

    ngx_str_null(&s->tier);

    if (conf->tier && ngx_rl_value_get(r, conf->tier, &s->tier) != NGX_OK) {
        return NGX_RL_SELECT_ERROR;
    }

    if (s->ctx->needs & NGX_RL_NEEDS_KEY) {
        rc = ngx_rl_api_key_text(r, &subject->api_key);

        if (rc == NGX_ERROR) {
            return NGX_RL_SELECT_ERROR;
        }

        if (rc == NGX_DECLINED) {
            subject->api_key.len = 0;
        }

        if (s->ctx->needs & NGX_RL_NEEDS_DIGEST) {
            ngx_rl_subject_digest(subject);
        }
    }

    return NGX_RL_SELECT_OK;
}


/*
 * The key of a client whose token is not valid becomes its address, if the key
 * is empty or has a claim: else a client that sends any such token had no
 * limit. written: the key as it is written. NGX_ERROR: memory is out.
 */
static ngx_int_t
ngx_rl_anonymous(ngx_http_request_t *r, const ngx_rl_ctx_t *ctx,
    const ngx_str_t *written, ngx_str_t *key)
{
    ngx_int_t                  rc;
    const char                *reason;
    ngx_http_variable_value_t  address;

    if (!(ctx->needs & NGX_RL_NEEDS_CLAIMS)
        || (key->len
            && ngx_strlcasestrn(written->data, written->data + written->len,
                                (u_char *) NGX_RL_JWT_PREFIX,
                                sizeof(NGX_RL_JWT_PREFIX) - 2)
               == NULL))
    {
        return NGX_OK;
    }

    rc = ngx_rl_jwt_invalid(r, &reason);

    if (rc != NGX_ABORT) {
        return rc;
    }

    if (ngx_rl_client_variable(r, &address, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    *key = ngx_rl_str(address.data, address.len);

    return ngx_rl_key_marked(r, NGX_RL_MARK_ADDRESS, key);
}


/* The key of any rule of the policy, whether or not it applies. */
static ngx_int_t
ngx_rl_select_key(void *data, ngx_rl_rule_t *rule, ngx_str_t *key)
{
    ngx_rl_selection_t *s = data;

    if (ngx_rl_values_key(s->request, rule->data, key) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_rl_anonymous(s->request, s->ctx, &rule->key, key);
}


ngx_int_t
ngx_rl_listed(const ngx_rl_policy_t *policy, const ngx_rl_subject_t *subject,
    ngx_rl_key_of_pt key_of, void *data, ngx_rl_listed_e *listed)
{
    ngx_str_t                key;
    ngx_uint_t               i;
    ngx_rl_listed_e          one;
    ngx_rl_policy_source_t  *source;

    *listed = ngx_rl_policy_listed(policy, subject, ngx_time());
    source = policy->sources.elts;

    for (i = 0;
         i < policy->sources.nelts && *listed != NGX_RL_LISTED_DENIED;
         i++)
    {
        if (!source[i].listed) {
            continue;
        }

        if (key_of(data, source[i].rule, &key) != NGX_OK) {
            return NGX_ERROR;
        }

        one = ngx_rl_policy_listed_key(&source[i], &key, ngx_time());
        *listed = ngx_max(*listed, one);
    }

    return NGX_OK;
}


/*
 * Looks the client up in the lists of all zones: any zone's deny list has its
 * say before a zone counts the request.
 */
static ngx_rl_selected_e
ngx_rl_select_lists(ngx_rl_selection_t *s)
{
    ngx_uint_t                 i, n;
    ngx_rl_ctx_t              *ctx;
    ngx_rl_policy_t           *policy;
    ngx_rl_listed_e            listed;
    ngx_rl_subject_t           key;
    ngx_rl_location_limit_t  **limits;

    ctx = s->ctx;
    limits = ctx->conf->limits->elts;
    n = ctx->conf->limits->nelts;

    s->listed = ngx_pnalloc(s->request->pool, n);
    if (s->listed == NULL) {
        return NGX_RL_SELECT_ERROR;
    }

    for (i = 0; i < n; i++) {
        policy = ctx->policies[i];
        listed = NGX_RL_LISTED_NOT;

        if ((policy->needs & NGX_RL_NEEDS_LISTS)
            && ngx_rl_listed(policy, &s->subject, ngx_rl_select_key, s, &listed)
               != NGX_OK)
        {
            return NGX_RL_SELECT_ERROR;
        }

        s->listed[i] = (u_char) listed;

        if (listed != NGX_RL_LISTED_NOT && s->report) {
            s->report->listed(s->report->data, limits[i]->limiter, listed);
        }

        if (listed == NGX_RL_LISTED_DENIED && ctx->denies == NULL) {
            ctx->denies = policy->limiter;
            ctx->token = NULL;

            /* it has the API key, and not the address alone */

            key = s->subject;
            key.addressed = 0;
            ctx->key_denied = (ngx_rl_policy_listed(policy, &key, ngx_time())
                               == NGX_RL_LISTED_DENIED);
        }
    }

    return NGX_RL_SELECT_OK;
}


/*
 * In a zone with "new_keys=", the client's key becomes its network if the key
 * is new and the network has brought too many. A request that is explained
 * makes nothing known. rule: has the key as it is written. NGX_ERROR: memory is
 * out.
 */
static ngx_int_t
ngx_rl_new_key(ngx_http_request_t *r, ngx_rl_ctx_t *ctx,
    ngx_rl_client_t *client, const ngx_rl_rule_t *rule)
{
    ngx_str_t   network;
    ngx_uint_t  look, forged;

    look = (ctx->explain != NULL);
    forged = ngx_rl_key_is_network(&client->key);

    if (!forged && ngx_rl_key_known(client, rule, look)) {
        return NGX_OK;
    }

    if (ngx_rl_client_key(r, NGX_RL_NETWORK_V4, NGX_RL_NETWORK_V6, &network)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (forged) {
        client->key = network;

    } else if (ngx_rl_key_admit(client, rule, &network, look)) {
        return NGX_OK;
    }

    if (!look && !ctx->by_network) {
        ctx->by_network = 1;
        ngx_rl_count(client->limiter->rows[NGX_RL_COUNTS_ZONE],
                     NGX_RL_COUNTS_BY_NETWORK, 1);
    }

    return NGX_OK;
}


/* The key becomes that of the client's network of so many bits. */
static ngx_int_t
ngx_rl_penalty_network_key(ngx_http_request_t *r, ngx_uint_t bits,
    ngx_rl_penalty_key_t *entry)
{
    entry->network = 1;

    return ngx_rl_client_key(r, bits, bits, &entry->key);
}


/*
 * The request may come under the penalty by this key. address: the key has the
 * client's. NGX_ERROR: memory is out.
 */
static ngx_int_t
ngx_rl_penalty_enter(ngx_http_request_t *r, ngx_rl_ctx_t *ctx,
    ngx_rl_penalty_t *penalty, const ngx_str_t *key, ngx_uint_t address_key)
{
    u_char                 address[NGX_RL_ADDRESS];
    uint64_t               until_ms;
    ngx_uint_t             bits;
    ngx_rl_id_t            id;
    ngx_rl_penalties_t    *penalties;
    ngx_rl_penalty_key_t  *entry;

    entry = ngx_array_push(ctx->penalty_keys);
    if (entry == NULL) {
        return NGX_ERROR;
    }

    entry->penalty = penalty;
    entry->key = *key;
    entry->counted = 0;
    entry->address = address_key;
    entry->network = 0;

    if (penalty->statuses) {
        ctx->needs |= NGX_RL_NEEDS_STATUS;
    }

    entry->until_ms = 0;

    penalties = ngx_rl_zone_penalties(&penalty->limiter->zone);

    if (ngx_rl_penalties_any(penalties, ngx_current_msec)) {
        id = ngx_rl_penalty_id(penalty, key);
        entry->until_ms = ngx_rl_penalties_until(penalties, &id,
                                                 ngx_current_msec);

        if (entry->address && ngx_rl_client_address(r, address)) {
            until_ms = ngx_rl_penalty_networks(penalty, address,
                                               ngx_current_msec, &bits);

            if (until_ms > entry->until_ms) {
                entry->until_ms = until_ms;
                return ngx_rl_penalty_network_key(r, bits, entry);
            }
        }
    }

    return NGX_OK;
}


/* NGX_OK, also if the request has no key of it; NGX_ERROR: memory is out. */
static ngx_int_t
ngx_rl_penalty_key(ngx_http_request_t *r, ngx_rl_ctx_t *ctx,
    ngx_rl_penalty_t *penalty)
{
    u_char           *given;
    ngx_str_t         key;
    ngx_rl_client_t   client;

    if (ngx_rl_value_key(r, penalty->data, &key) != NGX_OK) {
        return NGX_ERROR;
    }

    given = key.data;

    if (ngx_rl_anonymous(r, ctx, &penalty->key, &key) != NGX_OK) {
        return NGX_ERROR;
    }

    if (key.len == 0) {
        return NGX_OK;
    }

    if (penalty->limiter->new_keys) {
        ngx_memzero(&client, sizeof(ngx_rl_client_t));
        client.limiter = penalty->limiter;
        client.key = key;

        if (ngx_rl_new_key(r, ctx, &client, &penalty->rule) != NGX_OK) {
            return NGX_ERROR;
        }

        key = client.key;
    }

    return ngx_rl_penalty_enter(r, ctx, penalty, &key,
                                penalty->address || key.data != given);
}


ngx_rl_selected_e
ngx_rl_penalized(ngx_http_request_t *r, ngx_rl_ctx_t *ctx,
    const ngx_rl_limiter_t *limiter, const ngx_str_t *of, const ngx_str_t *key)
{
    uint64_t               longest_ms;
    ngx_int_t              rc;
    ngx_uint_t             i, known;
    ngx_rl_penalty_t     **penalties;
    ngx_rl_penalty_key_t  *entry;

    if (limiter->penalties == NULL) {
        return NGX_RL_SELECT_OK;
    }

    if (ctx->penalty_keys == NULL) {
        ctx->penalty_keys = ngx_array_create(r->pool, 2,
                                             sizeof(ngx_rl_penalty_key_t));
        if (ctx->penalty_keys == NULL) {
            return NGX_RL_SELECT_ERROR;
        }
    }

    /* a location may name the rules of a zone one by one */

    known = ctx->penalty_keys->nelts;
    entry = ctx->penalty_keys->elts;

    for (i = 0; i < known; i++) {
        if (entry[i].penalty->limiter == limiter
            && (of == NULL || ngx_rl_equal(&entry[i].penalty->key, of)))
        {
            return NGX_RL_SELECT_OK;
        }
    }

    penalties = limiter->penalties->elts;

    for (i = 0; i < limiter->penalties->nelts; i++) {
        rc = NGX_OK;

        if (of == NULL) {
            rc = ngx_rl_penalty_key(r, ctx, penalties[i]);

        } else if (ngx_rl_equal(&penalties[i]->key, of)) {
            rc = ngx_rl_penalty_enter(r, ctx, penalties[i], key,
                                      penalties[i]->address);
        }

        if (rc != NGX_OK) {
            return NGX_RL_SELECT_ERROR;
        }
    }

    /* if several are in force, the one with the longest wait counts */

    entry = ctx->penalty_keys->elts;
    longest_ms = 0;

    for (i = known; i < ctx->penalty_keys->nelts; i++) {
        if (entry[i].until_ms > longest_ms) {
            longest_ms = entry[i].until_ms;
            ctx->penalized = &entry[i];
        }
    }

    return ctx->penalized ? NGX_RL_SELECT_PENALIZED : NGX_RL_SELECT_OK;
}


/*
 * Before the zone of the location's limit of that number counts the request.
 * SKIPPED: its list lets the request pass uncounted.
 */
static ngx_rl_selected_e
ngx_rl_select_zone(ngx_rl_selection_t *s, ngx_uint_t number)
{
    if (s->listed && s->listed[number] == NGX_RL_LISTED_ALLOWED) {
        return NGX_RL_SELECT_SKIPPED;
    }

    if (ngx_rl_select_seen(s)
        && ngx_rl_subject_tier(&s->subject, s->policy, &s->tier,
                               ngx_rl_select_key, s)
           != NGX_OK)
    {
        return NGX_RL_SELECT_ERROR;
    }

    return s->ctx->conf->dry_run
           ? NGX_RL_SELECT_OK
           : ngx_rl_penalized(s->request, s->ctx, s->limiter, NULL,
                              NULL);
}


/*
 * Before any zone counts the request, where one of NEEDS_CLIENT is needed: its
 * token is not valid, or a list denies it. A dry run lets it go on.
 */
static ngx_rl_selected_e
ngx_rl_select_before(ngx_rl_selection_t *s)
{
    ngx_int_t                  rc;
    ngx_uint_t                 i, denied;
    const char                *reason;
    ngx_rl_ctx_t              *ctx;
    ngx_rl_selected_e          selected;
    ngx_rl_location_limit_t  **limits;

    ctx = s->ctx;
    limits = ctx->conf->limits->elts;
    s->listed = NULL;

    /* an address is cheaper than the signature of a token */

    denied = (ctx->needs & NGX_RL_NEEDS_CLAIMS)
             && (ctx->needs & NGX_RL_NEEDS_LISTS) && ngx_rl_select_network(s);

    if (ngx_rl_select_refused(s)) {
        return NGX_RL_SELECT_DENIED;
    }

    if ((ctx->needs & NGX_RL_NEEDS_TOKEN) && !denied) {
        rc = ngx_rl_jwt_invalid(s->request, &reason);

        if (rc == NGX_ERROR) {
            return NGX_RL_SELECT_ERROR;
        }

        if (rc == NGX_ABORT) {
            ctx->token = reason;
            ctx->denies = limits[0]->limiter;
        }
    }

    if (ngx_rl_select_seen(s) && ngx_rl_select_subject(s) != NGX_RL_SELECT_OK) {
        return NGX_RL_SELECT_ERROR;
    }

    if ((ctx->needs & NGX_RL_NEEDS_LISTS)
        && ngx_rl_select_lists(s) != NGX_RL_SELECT_OK)
    {
        return NGX_RL_SELECT_ERROR;
    }

    if (!ngx_rl_select_refused(s)) {
        return NGX_RL_SELECT_OK;
    }

    /* a token that is not valid: the client may be penalized, or will be */

    for (i = 0; ctx->token && i < ctx->conf->limits->nelts; i++) {
        s->limiter = limits[i]->limiter;
        s->policy = ctx->policies[i];

        selected = ngx_rl_select_zone(s, i);

        if (selected == NGX_RL_SELECT_PENALIZED) {
            ctx->denies = NULL;
            ctx->token = NULL;
        }

        if (selected > NGX_RL_SELECT_SKIPPED) {
            return selected;
        }
    }

    return NGX_RL_SELECT_DENIED;
}


/* Reads the limit from a variable. */
static ngx_rl_selected_e
ngx_rl_select_dynamic(ngx_rl_selection_t *s, ngx_rl_rule_t *rule,
    const ngx_rl_allowance_t **made)
{
    u_char               buf[NGX_RL_QUOTE_BYTES];
    ngx_str_t            text;
    const char          *expected;
    ngx_rl_values_t     *values;
    ngx_rl_allowance_t  *allowance;

    values = rule->data;
    allowance = ngx_palloc(s->request->pool, sizeof(ngx_rl_allowance_t));

    if (allowance == NULL
        || ngx_rl_value_get(s->request, values->limit, &text) != NGX_OK)
    {
        return NGX_RL_SELECT_ERROR;
    }

    if (text.len == 0) {
        s->match = NGX_RL_LIMIT_EMPTY;
        return NGX_RL_SELECT_SKIPPED;
    }

    expected = ngx_rl_rule_spec(&rule->spec, &text, &allowance->spec);

    if (expected == NULL) {
        expected = ngx_rl_limit_init(&allowance->limit, &allowance->spec);
    }

    if (expected == NULL) {
        *made = allowance;
        return NGX_RL_SELECT_OK;
    }

    text = ngx_rl_value_shown(rule, &text, buf);

    ngx_rl_request_log(s->request, NGX_RL_LOG_LIMIT, NGX_LOG_ERR,
        "ratelimit rule \"%V\" of zone \"%V\" has a limit of \"%V\", expected "
        "%s; it is not applied", &rule->id, &s->limiter->zone.name, &text,
        expected);

    s->match = NGX_RL_LIMIT_WRONG;

    return NGX_RL_SELECT_SKIPPED;
}


ngx_int_t
ngx_rl_allow(ngx_pool_t *pool, const ngx_rl_rule_t *rule,
    const ngx_rl_subject_t *subject, const ngx_str_t *key,
    const ngx_rl_allowance_t *allowance, ngx_rl_allowed_t *allowed)
{
    ngx_rl_limit_t           *limit;
    const ngx_rl_override_t  *override;

    allowed->limit = allowance ? &allowance->limit : &rule->limit;
    allowed->override = NULL;
    allowed->misfit = NULL;

    if (rule->policy->overrides == NULL) {
        return NGX_OK;
    }

    override = ngx_rl_policy_override(rule->policy, rule, subject, key,
                                      ngx_time());
    if (override == NULL) {
        return NGX_OK;
    }

    limit = ngx_palloc(pool, sizeof(ngx_rl_limit_t));
    if (limit == NULL) {
        return NGX_ERROR;
    }

    /* one that does not fit the rule leaves it as it is */

    if (ngx_rl_override_limit(override,
                              allowance ? &allowance->spec : &rule->spec, limit)
        == NULL)
    {
        allowed->limit = limit;
        allowed->override = override;

    } else {
        allowed->misfit = override;
    }

    return NGX_OK;
}


/*
 * What the rule, the tier, the API key or the rule's key allows, and what
 * overrides it for a time; or the location's narrower limit. SKIPPED: there is
 * no limit, or the key is not in the rule's share.
 */
static ngx_rl_selected_e
ngx_rl_select_limit(ngx_rl_selection_t *s, ngx_rl_rule_t *rule,
    const ngx_str_t *key)
{
    ngx_rl_limit_t            *narrow;
    ngx_rl_allowed_t          *allowed;
    ngx_rl_selected_e          selected;
    const ngx_rl_allowance_t  *allowance;

    allowed = &s->allowed;
    allowed->limit = &rule->limit;
    allowed->origin = NGX_RL_ORIGIN_RULE;
    allowed->dynamic = 0;

    if ((rule->needs & NGX_RL_NEEDS_PERCENT) && !ngx_rl_rule_percent(rule, key))
    {
        s->match = NGX_RL_NOT_IN_SHARE;
        return NGX_RL_SELECT_SKIPPED;
    }

    allowance = NULL;

    if (rule->ntier_limits || rule->key_limits) {
        allowance = ngx_rl_rule_allowance(rule, &s->subject, key,
                                          &allowed->origin);
    }

    if (allowance == NULL && rule->dynamic) {
        selected = ngx_rl_select_dynamic(s, rule, &allowance);

        if (selected != NGX_RL_SELECT_OK) {
            return selected;
        }

        allowed->dynamic = 1;
    }

    if (ngx_rl_allow(s->request->pool, rule, &s->subject, key, allowance,
                     allowed)
        != NGX_OK)
    {
        return NGX_RL_SELECT_ERROR;
    }

    if (allowed->limit->unlimited) {
        s->match = NGX_RL_UNLIMITED;

        /* its group has no limit, then */

        if (rule->group_index && s->nfree < NGX_RL_MAX_COUNTERS) {
            s->free[s->nfree++] = rule;
        }

        return NGX_RL_SELECT_SKIPPED;
    }

    if (!rule->narrowed || rule->number != s->of->narrows) {
        return NGX_RL_SELECT_OK;
    }

    /*
     * The location's narrower limit of a leaky bucket. If a tier or an override
     * is too slow for the burst, the location has all of it.
     */

    if (allowed->limit == &rule->limit) {
        allowed->limit = &s->of->limit;
        return NGX_RL_SELECT_OK;
    }

    narrow = ngx_palloc(s->request->pool, sizeof(ngx_rl_limit_t));
    if (narrow == NULL) {
        return NGX_RL_SELECT_ERROR;
    }

    if (ngx_rl_limit_narrow(allowed->limit, &s->of->spec, narrow) == NULL) {
        allowed->limit = narrow;
    }

    return NGX_RL_SELECT_OK;
}


/* Whether another rule of the same group applies already. */
static ngx_uint_t
ngx_rl_select_in_group(ngx_rl_selection_t *s, const ngx_rl_rule_t *rule)
{
    ngx_uint_t         i;
    ngx_rl_check_t    *check;
    ngx_rl_counter_t  *counter;

    if (rule->group_index == 0) {
        return 0;
    }

    for (i = 0; i < s->nfree; i++) {
        if (s->free[i]->group_index == rule->group_index
            && ngx_rl_rule_every(s->free[i], &s->subject))
        {
            return 1;
        }
    }

    check = &s->ctx->check;

    for (i = 0; i < check->ncounters; i++) {
        counter = &check->counters[i];

        if (counter->client->limiter == s->limiter
            && counter->rule->group_index == rule->group_index
            && ngx_rl_rule_every(counter->rule, &s->subject))
        {
            return 1;
        }
    }

    return 0;
}


/* Whether the rule applies, as far as that is known without its key. */
static ngx_rl_selected_e
ngx_rl_select_applies(ngx_rl_selection_t *s, const ngx_rl_rule_t *rule)
{
    ngx_int_t                  rc;
    const ngx_rl_condition_t  *failed;

    s->match = NGX_RL_MATCHED;

    if (rule->needs & NGX_RL_NEEDS_MATCH) {
        s->match = ngx_rl_rule_match(rule, ngx_rl_select_by_path(s),
                                     &s->subject);

        if (s->match == NGX_RL_MATCHED && rule->nconditions) {
            rc = ngx_rl_conditions(s->request, rule, &failed);

            if (rc == NGX_ERROR) {
                return NGX_RL_SELECT_ERROR;
            }

            if (rc == NGX_DECLINED) {
                s->match = NGX_RL_OTHER_HEADER + failed->kind;
                s->subject.failed = failed->name;
            }
        }
    }

    if (s->match == NGX_RL_MATCHED && s->of->number == NGX_RL_ALL
        && ngx_rl_select_in_group(s, rule))
    {
        s->match = NGX_RL_GROUP_TAKEN;
    }

    return (s->match == NGX_RL_MATCHED) ? NGX_RL_SELECT_OK
                                        : NGX_RL_SELECT_SKIPPED;
}


/*
 * A new client behind the others, with its key, or what stands for it: its
 * address if its token is not valid, its network if that has brought too many
 * keys. It is not one of the check's yet. NULL: memory is out.
 */
static ngx_rl_client_t *
ngx_rl_select_client(ngx_rl_selection_t *s, const ngx_rl_rule_t *rule)
{
    ngx_int_t         rc;
    ngx_rl_check_t   *check;
    ngx_rl_client_t  *client;
    ngx_rl_values_t  *values;

    check = &s->ctx->check;
    client = &check->clients[check->nclients];

    ngx_memzero(client, offsetof(ngx_rl_client_t, local));
    client->limiter = s->limiter;
    client->check = check;
    client->key_index = rule->key_index;

    values = rule->data;

    rc = values->nparts
         ? ngx_rl_values_key(s->request, values, &client->key)
         : ngx_rl_value_key(s->request, &values->key, &client->key);

    if ((s->ctx->needs & (NGX_RL_NEEDS_CLAIMS|NGX_RL_NEEDS_NEW_KEYS))
        && rc == NGX_OK)
    {
        rc = ngx_rl_anonymous(s->request, s->ctx, &rule->key, &client->key);

        if (rc == NGX_OK && (rule->needs & NGX_RL_NEEDS_NEW_KEYS)
            && client->key.len)
        {
            rc = ngx_rl_new_key(s->request, s->ctx, client, rule);
        }
    }

    return (rc == NGX_OK) ? client : NULL;
}


static ngx_rl_selected_e
ngx_rl_select_counter(ngx_rl_selection_t *s, ngx_rl_rule_t *rule,
    ngx_rl_client_t *client, const ngx_rl_limit_t *limit)
{
    ngx_rl_check_t    *check;
    ngx_rl_counter_t  *counter;

    check = &s->ctx->check;
    counter = &check->counters[check->ncounters++];

    ngx_memzero(counter, offsetof(ngx_rl_counter_t, answer));
    counter->rule = rule;
    counter->limit = limit;
    counter->client = client;
    counter->cost = rule->cost;
    counter->dry_run = (u_char) (rule->dry_run | s->ctx->conf->dry_run);
    counter->look = (rule->statuses != NULL);

    if (s->limiter->redis) {
        counter->fail_mode = ngx_rl_rule_fail_mode(rule,
                                                   s->ctx->conf->fail_mode);
    }

    if (s->of->look) {
        counter->cost = 0;
        counter->peek = 1;
        counter->look = 0;
        counter->fail_mode = NGX_RL_FAIL_OPEN;
        return NGX_RL_SELECT_OK;
    }

    if ((rule->needs & NGX_RL_NEEDS_COST)
        && ngx_rl_charge_start(s->request, counter) != NGX_OK)
    {
        return NGX_RL_SELECT_ERROR;
    }

    /* a request that is explained is not charged */

    if ((rule->needs & NGX_RL_NEEDS_END) && s->report == NULL
        && ngx_rl_charge_later(s->request, s->ctx) != NGX_OK)
    {
        return NGX_RL_SELECT_ERROR;
    }

    return NGX_RL_SELECT_OK;
}


static ngx_rl_selected_e
ngx_rl_select_rule(ngx_rl_selection_t *s, ngx_rl_rule_t *rule)
{
    ngx_uint_t             joins;
    ngx_rl_check_t        *check;
    ngx_rl_client_t       *client, *end;
    ngx_rl_selected_e      selected;
    const ngx_rl_limit_t  *limit;

    if (rule->needs & (NGX_RL_NEEDS_MATCH|NGX_RL_NEEDS_GROUP)) {
        selected = ngx_rl_select_applies(s, rule);

        if (selected != NGX_RL_SELECT_OK) {
            return selected;
        }
    }

    /* the client that the rule counts, if the check has it */

    check = &s->ctx->check;
    client = check->clients;
    end = &client[check->nclients];

    while (client < end
           && (client->limiter != s->limiter
               || client->key_index != rule->key_index))
    {
        client++;
    }

    joins = (client == end);

    if (joins) {
        client = ngx_rl_select_client(s, rule);
        if (client == NULL) {
            return NGX_RL_SELECT_ERROR;
        }

        if (client->key.len == 0) {
            s->match = NGX_RL_KEY_EMPTY;
            return NGX_RL_SELECT_SKIPPED;
        }
    }

    limit = &rule->limit;

    if (rule->needs & (NGX_RL_NEEDS_PERCENT|NGX_RL_NEEDS_LIMIT)) {
        selected = ngx_rl_select_limit(s, rule, &client->key);

        if (selected != NGX_RL_SELECT_OK) {
            return selected;
        }

        limit = s->allowed.limit;
    }

    if (check->ncounters == NGX_RL_MAX_COUNTERS) {
        s->match = NGX_RL_TOO_MANY;

        if (s->report == NULL) {
            ngx_rl_count(s->limiter->rows[NGX_RL_COUNTS_ZONE],
                         NGX_RL_COUNTS_TOO_MANY, 1);
        }

        ngx_rl_request_log(s->request, NGX_RL_LOG_TOO_MANY, NGX_LOG_ERR,
            "more than %d ratelimit rules match one request, rule \"%V\" of "
            "zone \"%V\" is not counted, nor is any after it",
            NGX_RL_MAX_COUNTERS, &rule->id, &s->limiter->zone.name);

        return NGX_RL_SELECT_FULL;
    }

    /*
     * A client that is new joins the check with its first counter, not before:
     * Redis would be asked about one without counters for nothing.
     */

    if (joins) {
        check->nclients++;

        if (ngx_rl_watch_due(s->limiter->watch, NGX_RL_WATCH_REQUESTS)) {

            /* a request that is explained is not counted: the next one is */

            if (s->report) {
                s->limiter->watch->samplers[NGX_RL_WATCH_REQUESTS].left = 1;

            } else {
                ngx_rl_watch_sample(client, rule, NGX_RL_WATCH_REQUESTS);
            }
        }
    }

    return ngx_rl_select_counter(s, rule, client, limit);
}


/* The zone's rules, those that the path finds if it finds some. */
static ngx_rl_selected_e
ngx_rl_select_rules(ngx_rl_selection_t *s)
{
    ngx_uint_t         i, n;
    ngx_rl_rule_t    **rules;
    ngx_rl_check_t    *check;
    ngx_rl_selected_e  selected;

    check = &s->ctx->check;

    if (s->of->number != NGX_RL_ALL) {
        n = 1;
        rules = &s->policy->fixed[s->of->number];

    } else if (!ngx_rl_select_by_path(s)) {
        n = s->policy->rules.nelts;
        rules = s->policy->rules.elts;

    } else {
        rules = s->rules;
        n = ngx_rl_policy_find(s->policy, &s->ctx->readings, rules,
                               NGX_RL_FOUND);

        if (n > NGX_RL_FOUND) {
            rules = ngx_palloc(s->request->pool, n * sizeof(ngx_rl_rule_t *));
            if (rules == NULL) {
                return NGX_RL_SELECT_ERROR;
            }

            n = ngx_rl_policy_find(s->policy, &s->ctx->readings, rules, n);
        }
    }

    for (i = 0; i < n; i++) {
        selected = ngx_rl_select_rule(s, rules[i]);

        if (selected == NGX_RL_SELECT_ERROR) {
            return NGX_RL_SELECT_ERROR;
        }

        if (s->report) {
            s->report->rule(s->report->data, rules[i],
                (selected == NGX_RL_SELECT_OK) ? NGX_RL_MATCHED : s->match,
                (selected == NGX_RL_SELECT_OK)
                ? &check->counters[check->ncounters - 1] : NULL, &s->subject,
                (rules[i]->needs & NGX_RL_NEEDS_LIMIT) ? &s->allowed : NULL);
        }

        if (selected == NGX_RL_SELECT_FULL) {
            return NGX_RL_SELECT_FULL;
        }
    }

    return NGX_RL_SELECT_OK;
}


ngx_rl_selected_e
ngx_rl_select(ngx_http_request_t *r, ngx_rl_ctx_t *ctx, ngx_rl_report_t *report)
{
    ngx_uint_t                 i, full;
    ngx_rl_selected_e          selected;
    ngx_rl_loc_conf_t         *conf;
    ngx_rl_selection_t         s;
    ngx_rl_location_limit_t  **limits;

    conf = ctx->conf;
    s.request = r;
    s.ctx = ctx;
    s.report = report;

    if (ctx->needs & NGX_RL_NEEDS_CLIENT) {
        selected = ngx_rl_select_before(&s);

        if (selected != NGX_RL_SELECT_OK) {
            return selected;
        }
    }

    limits = conf->limits->elts;
    full = 0;

    for (i = 0; i < conf->limits->nelts; i++) {
        s.of = limits[i];
        s.nfree = 0;
        s.limiter = s.of->limiter;
        s.policy = ctx->policies[i];

        if (ctx->needs & NGX_RL_NEEDS_CLIENT) {
            selected = ngx_rl_select_zone(&s, i);

            if (selected == NGX_RL_SELECT_SKIPPED) {
                continue;
            }

            if (selected != NGX_RL_SELECT_OK) {
                return selected;
            }
        }

        /* lists and penalties of the zones behind it count all the same */

        if (full) {
            continue;
        }

        selected = ngx_rl_select_rules(&s);

        if (selected == NGX_RL_SELECT_ERROR) {
            return NGX_RL_SELECT_ERROR;
        }

        full = (selected == NGX_RL_SELECT_FULL);

        /* a client that writes a path so may want to leave rules out */

        if (full && report == NULL && !conf->dry_run && ctx->readings.n) {
            return NGX_RL_SELECT_BAD_PATH;
        }
    }

    return NGX_RL_SELECT_OK;
}


/* Whether a status, or without one the rejection, is an event. */
static ngx_uint_t
ngx_rl_penalty_counts(const ngx_rl_ctx_t *ctx, const ngx_rl_penalty_t *penalty,
    ngx_uint_t status)
{
    ngx_uint_t               i;
    const ngx_rl_counter_t  *counter;

    if (status) {
        return penalty->statuses
               && ngx_rl_has_status(penalty->statuses, status);
    }

    if (!penalty->rejected || ctx->check.status != NGX_RL_REJECTED) {
        return 0;
    }

    /* the zone that decides may be another one */

    for (i = 0; i < ctx->check.ncounters; i++) {
        counter = &ctx->check.counters[i];

        if (counter->client->limiter == penalty->limiter
            && ngx_rl_rejects(counter))
        {
            return 1;
        }
    }

    return 0;
}


/*
 * As the zone's other lists name it; but a key that does not fit has its hash,
 * by which its penalty can be ended.
 */
static ngx_int_t
ngx_rl_penalty_row_name(ngx_http_request_t *r,
    const ngx_rl_penalty_key_t *entry, ngx_rl_watch_key_t *name)
{
    ngx_str_t  key;

    static const ngx_str_t  none = ngx_null_string;

    key = entry->key;

    if (entry->network) {
        return ngx_rl_watch_text(&none, &key, name);
    }

    if (entry->penalty->limiter->clear
        && ngx_rl_watch_text(&entry->penalty->key, &key, name) == NGX_OK
        && !name->cut)
    {
        return NGX_OK;
    }

    if (ngx_rl_key_name(r, &entry->penalty->key, &key) != NGX_OK) {
        return NGX_ERROR;
    }

    /* a hash is read, not made */

    return ngx_rl_watch_hash(NULL, &key, 1, name);
}


/*
 * Too many keys of the network are penalized: so is the network, until the
 * first of them is not. Returns as begin does; NGX_BUSY also if it is not known
 * now when that is: a later event begins the penalty.
 */
static ngx_int_t
ngx_rl_penalty_crowded(ngx_http_request_t *r, ngx_rl_penalty_key_t *entry,
    const u_char address[NGX_RL_ADDRESS], ngx_rl_penalized_t *made)
{
    ngx_uint_t         bits;
    ngx_rl_penalty_t  *penalty;

    penalty = entry->penalty;

    if (made->until_ms == 0) {
        return NGX_BUSY;
    }

    bits = ngx_rl_penalty_crowd(penalty, address, made);

    if (ngx_rl_penalty_network_key(r, bits, entry) != NGX_OK
        || ngx_rl_penalty_row_name(r, entry, &made->name) != NGX_OK)
    {
        return NGX_BUSY;
    }

    return ngx_rl_penalties_begin(
               ngx_rl_zone_penalties(&penalty->limiter->zone), made, NULL,
               ngx_current_msec);
}


ngx_int_t
ngx_rl_penalty_name(ngx_http_request_t *r, const ngx_rl_penalty_key_t *entry,
    ngx_str_t *name)
{
    *name = entry->key;

    return entry->network
           ? NGX_OK : ngx_rl_key_name(r, &entry->penalty->key, name);
}


static void
ngx_rl_penalty_begin(ngx_http_request_t *r, const ngx_rl_penalty_key_t *of)
{
    ngx_int_t                rc;
    u_char                   address[NGX_RL_ADDRESS];
    ngx_str_t                key;
    ngx_uint_t               count;
    ngx_rl_penalty_t        *penalty;
    ngx_rl_penalized_t       made;
    const ngx_rl_limiter_t  *limiter;
    ngx_rl_penalty_key_t     entry;

    entry = *of;
    penalty = entry.penalty;
    limiter = penalty->limiter;

    ngx_memzero(&made, sizeof(ngx_rl_penalized_t));
    made.id = ngx_rl_penalty_id(penalty, &entry.key);
    made.kind = penalty->kind;

    if (ngx_rl_penalty_row_name(r, &entry, &made.name) != NGX_OK) {
        return;
    }

    /* none of a UNIX socket */

    if (ngx_rl_client_address(r, address)) {
        made.network = ngx_rl_penalty_network(penalty, address, entry.address);
    }

    rc = ngx_rl_penalties_begin(ngx_rl_zone_penalties(&limiter->zone), &made,
                                &penalty->time, ngx_current_msec);

    if (rc == NGX_ABORT && entry.address) {
        rc = ngx_rl_penalty_crowded(r, &entry, address, &made);
    }

    if (rc == NGX_BUSY || ngx_rl_penalty_name(r, &entry, &key) != NGX_OK) {
        return;
    }

    count = entry.network ? NGX_RL_PENALTY_NETWORK
                          : (ngx_uint_t) penalty->action;

    if (rc == NGX_DECLINED || rc == NGX_ABORT) {
        count = NGX_RL_PENALTY_NONE;
    }

    ngx_rl_count(limiter->rows[NGX_RL_COUNTS_ZONE],
                 NGX_RL_COUNTS_PENALTIES + count, 1);

    if (count == NGX_RL_PENALTY_NONE) {

        ngx_rl_request_log(r, NGX_RL_LOG_NO_PENALTY, NGX_LOG_ERR,
            "ratelimit penalty \"%V\" of zone \"%V\" does not begin: too many "
            "keys%s are penalized", &penalty->id, &limiter->zone.name,
            (rc == NGX_ABORT) ? " of its network" : "");

        return;
    }

    ngx_rl_request_log(r, entry.network ? NGX_RL_LOG_NETWORK
                                        : NGX_RL_LOG_PENALTY, NGX_LOG_WARN,
        "ratelimit penalty \"%V\" of zone \"%V\" begins: %s for %uL s, key "
        "\"%V\", number %uD of this key", &penalty->id, &limiter->zone.name,
        ngx_rl_penalty_actions[penalty->action],
        (made.until_ms - ngx_current_msec + 999) / 1000, &key, made.times);
}


void
ngx_rl_penalty_events(ngx_http_request_t *r, ngx_rl_ctx_t *ctx,
    ngx_uint_t status)
{
    ngx_uint_t             i;
    ngx_rl_penalty_key_t  *entry;

    if (ctx->penalized || ctx->penalty_keys == NULL) {
        return;
    }

    entry = ctx->penalty_keys->elts;

    for (i = 0; i < ctx->penalty_keys->nelts; i++) {
        if (entry[i].counted
            || !ngx_rl_penalty_counts(ctx, entry[i].penalty, status))
        {
            continue;
        }

        entry[i].counted = 1;

        if (ngx_rl_penalty_event(entry[i].penalty, &entry[i].key)) {
            ngx_rl_penalty_begin(r, &entry[i]);
        }
    }
}
