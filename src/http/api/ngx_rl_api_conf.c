/*
 * "ratelimit_api": the directive, and what only the whole configuration tells.
 */

#include "ngx_rl_api.h"
#include "ngx_rl_conf.h"

/*
 * A body that is too large for the endpoint shall be refused by it, with a
 * problem: nginx's own check comes first, and has to let it pass. It is not
 * read, or no further than that.
 */
#define NGX_RL_API_MAX_BODY  ((off_t) 1024 * 1024 * 1024)


static const char *
ngx_rl_api_write(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    ngx_rl_api_conf_t *api = target;

    api->write = 1;

    return NULL;
}


static const char *
ngx_rl_api_author(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    ngx_rl_api_conf_t *api = target;

    if (value->len == 0) {
        return row->expected;
    }

    api->author = ngx_rl_value_new(cf, value);

    return api->author ? NULL : "";
}


static const ngx_rl_row_t  ngx_rl_api_rows[] = {
    { ngx_string("zone="), ngx_rl_row_text, offsetof(ngx_rl_api_conf_t, zone),
      .expected = "the name of a zone" },
    { ngx_string("write"), ngx_rl_api_write, .expected = "it alone" },
    { ngx_string("token_file="), ngx_rl_row_tokens,
      offsetof(ngx_rl_api_conf_t, guard.tokens), .expected = "a file" },
    { ngx_string("author="), ngx_rl_api_author, .expected = "a value" },
    { .name = ngx_null_string }
};


/* ratelimit_api zone=<name> [write] [token_file=<file>] [author=<value>] */
char *
ngx_rl_api(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    const char                *where;
    ngx_rl_api_conf_t         *api;
    ngx_rl_main_conf_t        *rmcf;
    ngx_http_core_loc_conf_t  *clcf;

    if (rlcf->api || rlcf->exempt) {
        return rlcf->api ? "is duplicate"
                         : "stands beside \"ratelimit_metrics\"";
    }

    /* its paths are what stands below the location's name */

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    where = clcf->exact_match ? "\"=\"" : clcf->named ? "a name" : NULL;

#if (NGX_PCRE)
    if (clcf->regex) {
        where = "a regular expression";
    }
#endif

    if (where) {
        return ngx_rl_wrong(cf, "is in a location with %s, expected a prefix: "
                            "\"location /ratelimit/\"", where);
    }

    api = ngx_pcalloc(cf->pool, sizeof(ngx_rl_api_conf_t));

    if (api == NULL
        || ngx_rl_rows_read(cf, ngx_rl_api_rows, api, 1,
                            "\"zone=<name> [write] [token_file=<file>] "
                            "[author=<value>]\"")
           != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (api->zone.len == 0) {
        return ngx_rl_wrong(cf, "has no zone, expected \"zone=<name>\"");
    }

    ngx_rl_place(cf, &api->place);

    api->path = clcf->name;
    api->server = ((ngx_http_conf_ctx_t *) cf->ctx)->srv_conf;
    api->location = rlcf;

    rlcf->api = api;
    rlcf->guard = &api->guard;
    rlcf->exempt = 1;

    clcf->handler = ngx_rl_api_handler;

    rmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_ratelimit_module);

    return (ngx_rl_push(&rmcf->apis, api) == NGX_OK) ? NGX_CONF_OK
                                                     : NGX_CONF_ERROR;
}


/* ratelimit_status_page */
char *
ngx_rl_status_page(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    ngx_http_core_loc_conf_t  *clcf;

    if (rlcf->page) {
        return "is duplicate";
    }

    rlcf->page = ngx_palloc(cf->pool, sizeof(ngx_rl_conf_place_t));
    if (rlcf->page == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_rl_place(cf, rlcf->page);

    /* "/ratelimit" leads to "/ratelimit/" */

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->name.len && clcf->name.data[clcf->name.len - 1] == '/') {
        clcf->auto_redirect = 1;
    }

    return NGX_CONF_OK;
}


/*
 * Before limits are inherited. A location inside of another one is not the
 * endpoint. But what "if" and "limit_except" make has its name, and is: with
 * the rights that stand there.
 */
char *
ngx_rl_api_merge(ngx_conf_t *cf, ngx_rl_loc_conf_t *prev,
    ngx_rl_loc_conf_t *conf)
{
    ngx_http_core_loc_conf_t  *clcf;
    ngx_rl_api_conf_t         *api;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (prev->api && clcf->noname && clcf->handler == NULL) {
        conf->api = prev->api;
        conf->page = conf->page ? conf->page : prev->page;
        conf->exempt = (conf->limits == NULL) ? prev->exempt : 0;
        clcf->handler = ngx_rl_api_handler;
    }

    if (conf->api == NULL && conf->page) {
        ngx_rl_wrong_at(cf, NGX_LOG_EMERG, conf->page,
                        "\"ratelimit_status_page\" is in a location without "
                        "\"ratelimit_api\", expected both,");
        return NGX_CONF_ERROR;
    }

    if (conf->guard && ngx_rl_guard_merge(cf, conf->guard) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (conf->api == NULL) {
        return NGX_CONF_OK;
    }

    api = conf->api;

    if (api->write && api->guard.tokens == NULL && !api->guard.verifies) {
        ngx_rl_wrong_at(cf, NGX_LOG_EMERG, &api->place, "\"ratelimit_api\" has "
                        "\"write\" without \"token_file=\", expected it, or "
                        "\"ssl_verify_client\" in the server,");
        return NGX_CONF_ERROR;
    }

    clcf->client_max_body_size = NGX_RL_API_MAX_BODY;

    return NGX_CONF_OK;
}


/*
 * The limits of a check are all rules of the zone, in a location that is this
 * one otherwise. One of several rules by name has room for more of them.
 */
static ngx_int_t
ngx_rl_api_resolve_checks(ngx_conf_t *cf, ngx_rl_api_conf_t *api)
{
    ngx_uint_t                i, j, n;
    ngx_rl_loc_conf_t        *conf;
    ngx_rl_location_limit_t  *limit;

    conf = ngx_palloc(cf->pool, 2 * sizeof(ngx_rl_loc_conf_t));
    limit = ngx_pcalloc(cf->pool, sizeof(ngx_rl_location_limit_t));

    if (conf == NULL || limit == NULL) {
        return NGX_ERROR;
    }

    limit->limiter = api->limiter;
    limit->number = NGX_RL_ALL;
    limit->narrows = NGX_RL_ALL;

    for (i = 0; i < 2; i++) {
        conf[i] = *api->location;
        conf[i].limits = ngx_array_create(cf->pool, NGX_RL_MAX_COUNTERS,
                                          sizeof(void *));
        if (conf[i].limits == NULL) {
            return NGX_ERROR;
        }

        n = i ? NGX_RL_MAX_COUNTERS : 1;

        for (j = 0; j < n; j++) {
            (void) ngx_rl_push(conf[i].limits, limit);
        }
    }

    api->checks = conf;

    return NGX_OK;
}


/* The zone follows a document. */
ngx_int_t
ngx_rl_api_resolve(ngx_conf_t *cf, ngx_rl_main_conf_t *conf, void *entry)
{
    ngx_rl_api_conf_t *api = entry;

    ngx_rl_limiter_t    *limiter;
    ngx_rl_zone_conf_t  *zone;

    zone = ngx_rl_zone_find(cf, conf, &api->zone, "ratelimit_api", NULL,
                            &api->place);
    if (zone == NULL) {
        return NGX_ERROR;
    }

    limiter = &zone->limiter;

    api->limiter = limiter;
    limiter->follows = 1;
    zone->used = 1;

    if (limiter->watch == NULL) {
        limiter->watch = ngx_rl_watch_add(cf, &limiter->zone.name,
                                          limiter->clear,
                                          &ngx_http_ratelimit_module);
    }

    return limiter->watch ? ngx_rl_api_resolve_checks(cf, api) : NGX_ERROR;
}
