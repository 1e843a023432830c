/*
 * The client of a request: its key, its address, and the lists that have it.
 */

#include "ngx_http_ratelimit_select.h"

static ngx_int_t ngx_http_ratelimit_select_denied(
    ngx_http_ratelimit_selection_t *s, ngx_http_ratelimit_loc_conf_t *conf);
static void ngx_http_ratelimit_select_denied_key(
    ngx_http_ratelimit_selection_t *s, const ngx_ratelimit_policy_t *policy);
static ngx_int_t ngx_http_ratelimit_select_listed(
    ngx_http_ratelimit_selection_t *s, const ngx_ratelimit_policy_t *policy,
    ngx_ratelimit_listed_e *listed);


ngx_int_t
ngx_http_ratelimit_select_token(ngx_http_ratelimit_selection_t *s,
    ngx_http_ratelimit_loc_conf_t *conf)
{
    ngx_int_t                     rc;
    const char                   *reason;
    ngx_http_ratelimit_limit_t  **limits;

    rc = ngx_http_ratelimit_jwt_invalid(s->request, &reason);

    if (rc != NGX_ABORT) {
        return rc;
    }

    limits = conf->limits->elts;

    s->ctx->token = reason;
    s->ctx->denies = limits[0]->limiter;

    return conf->dry_run ? NGX_OK : NGX_ABORT;
}


ngx_int_t
ngx_http_ratelimit_select_subject(ngx_http_ratelimit_selection_t *s,
    ngx_http_ratelimit_loc_conf_t *conf)
{
    ngx_int_t                 rc;
    ngx_http_request_t       *r;
    ngx_ratelimit_subject_t  *subject;

    r = s->request;
    subject = &s->subject;
    subject->log_limit = ngx_http_ratelimit_log_limit_of(r,
                                             NGX_HTTP_RATELIMIT_LOG_REGEX);

    subject->method = r->method;
    subject->path = s->ctx->path;
    subject->host = r->headers_in.server;
    subject->log = r->connection->log;
    subject->api_key.len = 0;
    subject->digested = 0;
    subject->addressed = (s->ctx->needs & NGX_RATELIMIT_NEEDS_ADDRESS)
                         && ngx_http_ratelimit_client_address(r,
                                                          subject->address);

    ngx_str_null(&s->tier);

    if (conf->tier
        && ngx_http_ratelimit_value_get(r, conf->tier, &s->tier) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (s->ctx->needs & NGX_RATELIMIT_NEEDS_KEY) {
        rc = ngx_http_ratelimit_api_key_text(r, &subject->api_key);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_DECLINED) {
            subject->api_key.len = 0;
        }

        if (s->ctx->needs & NGX_RATELIMIT_NEEDS_DIGEST) {
            ngx_ratelimit_subject_digest(subject);
        }
    }

    return (s->ctx->needs & NGX_RATELIMIT_NEEDS_LISTS)
           ? ngx_http_ratelimit_select_denied(s, conf) : NGX_OK;
}


/*
 * Before any zone counts the request. A dry run lets it go on. NGX_ABORT: it is
 * denied.
 */
static ngx_int_t
ngx_http_ratelimit_select_denied(ngx_http_ratelimit_selection_t *s,
    ngx_http_ratelimit_loc_conf_t *conf)
{
    ngx_uint_t                    i;
    ngx_ratelimit_listed_e        listed;
    ngx_http_ratelimit_limit_t  **limits;

    limits = conf->limits->elts;

    for (i = 0; i < conf->limits->nelts; i++) {
        if (ngx_http_ratelimit_select_listed(s, s->ctx->policies[i], &listed)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (listed != NGX_RATELIMIT_LISTED_NOT && s->report) {
            s->report->listed(s->report->data, limits[i]->limiter, listed);
        }

        if (listed == NGX_RATELIMIT_LISTED_DENIED && s->ctx->denies == NULL) {
            s->ctx->denies = limits[i]->limiter;
            ngx_http_ratelimit_select_denied_key(s, s->ctx->policies[i]);
        }
    }

    return (s->ctx->denies && !conf->dry_run) ? NGX_ABORT : NGX_OK;
}


/* Whether a list has the API key, and not the address alone. */
static void
ngx_http_ratelimit_select_denied_key(ngx_http_ratelimit_selection_t *s,
    const ngx_ratelimit_policy_t *policy)
{
    ngx_ratelimit_subject_t  key;

    key = s->subject;
    key.addressed = 0;

    s->ctx->key_denied = (ngx_ratelimit_policy_listed(policy, &key, ngx_time())
                          == NGX_RATELIMIT_LISTED_DENIED);
}


/*
 * A list may name values of the keys of rules. Such a key says who the client
 * is, whether or not its rule applies to the request.
 */
static ngx_int_t
ngx_http_ratelimit_select_listed(ngx_http_ratelimit_selection_t *s,
    const ngx_ratelimit_policy_t *policy, ngx_ratelimit_listed_e *listed)
{
    ngx_str_t                key;
    ngx_uint_t               i;
    ngx_ratelimit_rule_t   **rules;
    ngx_ratelimit_listed_e   one;

    *listed = NGX_RATELIMIT_LISTED_NOT;

    if (!(policy->needs & NGX_RATELIMIT_NEEDS_LISTS)) {
        return NGX_OK;
    }

    *listed = ngx_ratelimit_policy_listed(policy, &s->subject, ngx_time());
    rules = policy->listed.elts;

    for (i = 0;
         i < policy->listed.nelts && *listed != NGX_RATELIMIT_LISTED_DENIED;
         i++)
    {
        if (ngx_http_ratelimit_values_key(s->request, rules[i]->data, &key)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        one = ngx_ratelimit_policy_listed_key(policy, i, &key, ngx_time());
        *listed = ngx_max(*listed, one);
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_ratelimit_select_allowed(ngx_http_ratelimit_selection_t *s)
{
    ngx_int_t               rc;
    ngx_ratelimit_listed_e  listed;

    rc = ngx_http_ratelimit_select_listed(s, s->policy, &listed);

    if (rc != NGX_OK || listed == NGX_RATELIMIT_LISTED_ALLOWED) {
        return rc;
    }

    ngx_ratelimit_subject_tier(&s->subject, s->policy, &s->tier);

    return NGX_DECLINED;
}


ngx_int_t
ngx_http_ratelimit_select_anonymous(ngx_http_ratelimit_selection_t *s,
    const ngx_ratelimit_rule_t *rule, ngx_str_t *key)
{
    ngx_int_t                  rc;
    const char                *reason;
    ngx_http_variable_value_t  address;

    if (key->len
        && ngx_strlcasestrn(rule->key.data, rule->key.data + rule->key.len,
                            (u_char *) NGX_HTTP_RATELIMIT_JWT_PREFIX,
                            sizeof(NGX_HTTP_RATELIMIT_JWT_PREFIX) - 2)
           == NULL)
    {
        return NGX_OK;
    }

    rc = ngx_http_ratelimit_jwt_invalid(s->request, &reason);

    if (rc != NGX_ABORT) {
        return rc;
    }

    if (ngx_http_ratelimit_client_variable(s->request, &address, 0) != NGX_OK)
    {
        return NGX_ERROR;
    }

    key->len = address.len;
    key->data = address.data;

    return NGX_OK;
}
