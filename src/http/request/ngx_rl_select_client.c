/*
 * The client of a request: its key, its address, and the lists that have it.
 */

#include "ngx_rl_select.h"

/* of the network that "new_keys=" counts */
#define NGX_RL_NETWORK_V4  24
#define NGX_RL_NETWORK_V6  56

/* in a dry run it goes on */
#define ngx_rl_select_refused(s)                                              \
    ((s)->ctx->denies && !(s)->ctx->conf->dry_run)

#define ngx_rl_select_seen(s)                                                 \
    ((s)->ctx->needs & (NGX_RL_NEEDS_SUBJECT                                  \
                        |NGX_RL_NEEDS_REPORT))


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


/* Whether the request's token is valid. */
static ngx_int_t
ngx_rl_select_token(ngx_rl_selection_t *s)
{
    ngx_int_t                  rc;
    const char                *reason;
    ngx_rl_location_limit_t  **limits;

    rc = ngx_rl_jwt_invalid(s->request, &reason);

    if (rc == NGX_ABORT) {
        limits = s->ctx->conf->limits->elts;

        s->ctx->token = reason;
        s->ctx->denies = limits[0]->limiter;
    }

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}


/*
 * The API key and the address are only looked for where a policy asks for
 * them.
 */
static ngx_int_t
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
    subject->host = r->headers_in.server;
    subject->log = r->connection->log;
    subject->api_key.len = 0;
    subject->digested = 0;
    subject->addressed = (s->ctx->needs & NGX_RL_NEEDS_ADDRESS)
                         && ngx_rl_client_address(r, subject->address);

    ngx_str_null(&s->tier);

    if (conf->tier && ngx_rl_value_get(r, conf->tier, &s->tier) != NGX_OK) {
        return NGX_ERROR;
    }

    if (s->ctx->needs & NGX_RL_NEEDS_KEY) {
        rc = ngx_rl_api_key_text(r, &subject->api_key);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_DECLINED) {
            subject->api_key.len = 0;
        }

        if (s->ctx->needs & NGX_RL_NEEDS_DIGEST) {
            ngx_rl_subject_digest(subject);
        }
    }

    return NGX_OK;
}


/*
 * Where a token has no claims, as it is not valid, the client's address is the
 * key: else a client that sends any such token had no limit.
 */
ngx_int_t
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

    key->len = address.len;
    key->data = address.data;

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


/*
 * A list may name values of the keys of rules. Such a key says who the client
 * is, whether or not its rule applies to the request.
 */
static ngx_int_t
ngx_rl_select_listed(ngx_rl_selection_t *s, const ngx_rl_policy_t *policy,
    ngx_rl_listed_e *listed)
{
    ngx_str_t        key;
    ngx_uint_t       i;
    ngx_rl_rule_t  **rules;
    ngx_rl_listed_e  one;

    *listed = NGX_RL_LISTED_NOT;

    if (!(policy->needs & NGX_RL_NEEDS_LISTS)) {
        return NGX_OK;
    }

    *listed = ngx_rl_policy_listed(policy, &s->subject, ngx_time());
    rules = policy->listed.elts;

    for (i = 0;
         i < policy->listed.nelts && *listed != NGX_RL_LISTED_DENIED;
         i++)
    {
        if (ngx_rl_select_key(s, rules[i], &key) != NGX_OK) {
            return NGX_ERROR;
        }

        one = ngx_rl_policy_listed_key(policy, i, rules[i], &key, ngx_time());
        *listed = ngx_max(*listed, one);
    }

    return NGX_OK;
}


/* Whether the list has the API key, and not the address alone. */
static void
ngx_rl_select_denied(ngx_rl_selection_t *s, ngx_uint_t number)
{
    ngx_rl_subject_t        key;
    const ngx_rl_policy_t  *policy;

    policy = s->ctx->policies[number];

    key = s->subject;
    key.addressed = 0;

    s->ctx->denies = policy->limiter;
    s->ctx->token = NULL;
    s->ctx->key_denied = (ngx_rl_policy_listed(policy, &key, ngx_time())
                          == NGX_RL_LISTED_DENIED);
}


/*
 * Looks the client up in the lists of all zones: any zone's deny list has its
 * say before a zone counts the request.
 */
static ngx_int_t
ngx_rl_select_lists(ngx_rl_selection_t *s)
{
    ngx_uint_t                 i, n;
    ngx_rl_listed_e            listed;
    ngx_rl_location_limit_t  **limits;

    limits = s->ctx->conf->limits->elts;
    n = s->ctx->conf->limits->nelts;

    s->listed = ngx_pnalloc(s->request->pool, n);
    if (s->listed == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        if (ngx_rl_select_listed(s, s->ctx->policies[i], &listed) != NGX_OK) {
            return NGX_ERROR;
        }

        s->listed[i] = (u_char) listed;

        if (listed != NGX_RL_LISTED_NOT && s->report) {
            s->report->listed(s->report->data, limits[i]->limiter, listed);
        }

        if (listed == NGX_RL_LISTED_DENIED && s->ctx->denies == NULL) {
            ngx_rl_select_denied(s, i);
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_rl_select_zone(ngx_rl_selection_t *s, ngx_uint_t number)
{
    if (s->listed && s->listed[number] == NGX_RL_LISTED_ALLOWED) {
        return NGX_DECLINED;
    }

    if (ngx_rl_select_seen(s)
        && ngx_rl_subject_tier(&s->subject, s->policy, &s->tier,
                               ngx_rl_select_key, s)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return s->ctx->conf->dry_run
           ? NGX_OK : ngx_rl_penalized(s->request, s->ctx, s->limiter);
}


/* A token that is not valid: the client may be penalized, or will be. */
static ngx_int_t
ngx_rl_select_guessed(ngx_rl_selection_t *s)
{
    ngx_int_t                  rc;
    ngx_uint_t                 i;
    ngx_rl_location_limit_t  **limits;

    limits = s->ctx->conf->limits->elts;

    for (i = 0; i < s->ctx->conf->limits->nelts; i++) {
        s->limiter = limits[i]->limiter;
        s->policy = s->ctx->policies[i];

        rc = ngx_rl_select_zone(s, i);

        if (rc == NGX_BUSY) {
            s->ctx->denies = NULL;
            s->ctx->token = NULL;
        }

        if (rc == NGX_BUSY || rc == NGX_ERROR) {
            return rc;
        }
    }

    return NGX_ABORT;
}


ngx_int_t
ngx_rl_select_begin(ngx_rl_selection_t *s)
{
    ngx_uint_t  denied;

    s->listed = NULL;

    /* an address is cheaper than the signature of a token */

    denied = (s->ctx->needs & NGX_RL_NEEDS_CLAIMS)
             && (s->ctx->needs & NGX_RL_NEEDS_LISTS)
             && ngx_rl_select_network(s);

    if (ngx_rl_select_refused(s)) {
        return NGX_ABORT;
    }

    if ((s->ctx->needs & NGX_RL_NEEDS_TOKEN) && !denied
        && ngx_rl_select_token(s) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_rl_select_seen(s) && ngx_rl_select_subject(s) != NGX_OK) {
        return NGX_ERROR;
    }

    if ((s->ctx->needs & NGX_RL_NEEDS_LISTS)
        && ngx_rl_select_lists(s) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (!ngx_rl_select_refused(s)) {
        return NGX_OK;
    }

    return s->ctx->token ? ngx_rl_select_guessed(s) : NGX_ABORT;
}


ngx_int_t
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


ngx_int_t
ngx_rl_select_counted(ngx_rl_selection_t *s, const ngx_rl_rule_t *rule,
    ngx_rl_client_t *client)
{
    if (ngx_rl_anonymous(s->request, s->ctx, &rule->key, &client->key)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ((rule->needs & NGX_RL_NEEDS_NEW_KEYS) && client->key.len)
           ? ngx_rl_new_key(s->request, s->ctx, client, rule) : NGX_OK;
}
