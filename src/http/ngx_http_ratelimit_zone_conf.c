/*
 * "ratelimit_zone": the shared memory, its key, its Redis, and the rule of
 * the zone itself.
 */

#include "ngx_http_ratelimit.h"

#include "ngx_ratelimit_document.h"
#include "ngx_ratelimit_job.h"
#include "ngx_ratelimit_sync.h"
#include "ngx_ratelimit_text.h"

static ngx_int_t ngx_http_ratelimit_zone_parameters(ngx_conf_t *cf,
    ngx_http_ratelimit_zone_t *zone, ngx_http_ratelimit_rule_t *rule,
    ssize_t *size);
static ngx_int_t ngx_http_ratelimit_zone_own(ngx_conf_t *cf,
    ngx_http_ratelimit_zone_t *zone, ngx_str_t *text);
static ngx_int_t ngx_http_ratelimit_zone_size(ngx_conf_t *cf,
    ngx_str_t *text, ngx_str_t *name, ssize_t *size);
static ngx_int_t ngx_http_ratelimit_zone_memory(ngx_conf_t *cf,
    ngx_http_ratelimit_zone_t *zone, size_t size);
static ngx_int_t ngx_http_ratelimit_zone_rule(ngx_conf_t *cf,
    ngx_http_ratelimit_main_conf_t *conf, ngx_http_ratelimit_zone_t *zone,
    ngx_http_ratelimit_rule_t *rule);


char *
ngx_http_ratelimit_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_ratelimit_main_conf_t *rmcf = conf;

    ssize_t                      size;
    ngx_str_t                   *value;
    ngx_http_ratelimit_rule_t   *rule;
    ngx_http_ratelimit_zone_t   *zone, **entry;

    zone = ngx_pcalloc(cf->pool, sizeof(ngx_http_ratelimit_zone_t));
    rule = ngx_pcalloc(cf->pool, sizeof(ngx_http_ratelimit_rule_t));

    if (zone == NULL || rule == NULL) {
        return NGX_CONF_ERROR;
    }

    size = 0;
    value = cf->args->elts;

    zone->limiter.zone.key = value[1];
    ngx_http_ratelimit_place(cf, &zone->place);

    if (value[1].len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_zone\" has an empty key, "
                           "expected a value with variables");
        return NGX_CONF_ERROR;
    }

    if (ngx_http_ratelimit_value_compile(cf, &value[1], &zone->key) != NGX_OK
        || ngx_http_ratelimit_zone_parameters(cf, zone, rule, &size)
           != NGX_OK
        || ngx_http_ratelimit_zone_memory(cf, zone, size) != NGX_OK
        || ngx_ratelimit_policy_base(&zone->limiter, cf->pool) == NULL
        || ngx_http_ratelimit_zone_rule(cf, rmcf, zone, rule) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    entry = ngx_array_push(&rmcf->zones);
    if (entry == NULL) {
        return NGX_CONF_ERROR;
    }

    *entry = zone;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_ratelimit_zone_parameters(ngx_conf_t *cf,
    ngx_http_ratelimit_zone_t *zone, ngx_http_ratelimit_rule_t *rule,
    ssize_t *size)
{
    ngx_int_t   rc;
    ngx_str_t  *value, text, *name;
    ngx_uint_t  i;

    value = cf->args->elts;
    name = &zone->limiter.zone.name;

    for (i = 2; i < cf->args->nelts; i++) {

        if (name->len == 0
            && ngx_http_ratelimit_parameter(&value[i], "zone=", &text))
        {
            if (ngx_http_ratelimit_zone_size(cf, &text, name, size)
                != NGX_OK)
            {
                return NGX_ERROR;
            }

            continue;
        }

        rc = ngx_http_ratelimit_zone_own(cf, zone, &value[i]);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_OK) {
            continue;
        }

        rc = ngx_http_ratelimit_rule_parameter(cf, "ratelimit_zone",
                                               &value[i], rule);
        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_DECLINED) {
            ngx_http_ratelimit_rule_unknown(cf, "ratelimit_zone",
                                            "\"zone=<name>:<size>\", "
                                            "\"redis=<name>\", "
                                            "\"state=<file>\", "
                                            "\"keys_in_clear=on|off\"",
                                            &value[i]);
            return NGX_ERROR;
        }
    }

    if (name->len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_zone\" has no zone, "
                           "expected \"zone=<name>:<size>\"");
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* What no rule has. NGX_DECLINED: another parameter, or the same again. */
static ngx_int_t
ngx_http_ratelimit_zone_own(ngx_conf_t *cf, ngx_http_ratelimit_zone_t *zone,
    ngx_str_t *text)
{
    ngx_str_t                 value;
    ngx_ratelimit_limiter_t  *limiter;

    limiter = &zone->limiter;

    if (zone->redis.len == 0
        && ngx_http_ratelimit_parameter(text, "redis=", &value)
        && value.len)
    {
        zone->redis = value;
        return NGX_OK;
    }

    if (limiter->state.len == 0
        && ngx_http_ratelimit_parameter(text, "state=", &value)
        && value.len)
    {
        limiter->state = value;
        limiter->follows = 1;

        return ngx_conf_full_name(cf->cycle, &limiter->state, 0);
    }

    if (zone->in_clear == 0
        && ngx_http_ratelimit_parameter(text, "keys_in_clear=", &value))
    {
        if (value.len == 2 && ngx_strncmp(value.data, "on", 2) == 0) {
            limiter->clear = 1;

        } else if (value.len != 3 || ngx_strncmp(value.data, "off", 3) != 0) {
            return NGX_DECLINED;
        }

        zone->in_clear = 1;
        return NGX_OK;
    }

    return NGX_DECLINED;
}


/* "name:size" */
static ngx_int_t
ngx_http_ratelimit_zone_size(ngx_conf_t *cf, ngx_str_t *text,
    ngx_str_t *name, ssize_t *size)
{
    u_char     *colon;
    ngx_str_t   number;

    colon = ngx_strlchr(text->data, text->data + text->len, ':');

    if (colon == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_zone\" has an invalid \"zone=%V\", "
                           "expected \"zone=<name>:<size>\"", text);
        return NGX_ERROR;
    }

    name->data = text->data;
    name->len = colon - text->data;

    if (!ngx_ratelimit_name_valid(name->data, name->len)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_zone\" has an invalid name \"%V\", "
                           "expected 1 to 64 of A-Z, a-z, 0-9, \"_\", "
                           "\".\", \"-\"", name);
        return NGX_ERROR;
    }

    number.data = colon + 1;
    number.len = text->data + text->len - number.data;

    *size = ngx_parse_size(&number);

    if (*size == NGX_ERROR
        || *size < (ssize_t) ngx_ratelimit_zone_min_size())
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_zone\" \"%V\" has an invalid size "
                           "\"%V\", expected %uzk or more", name, &number,
                           ngx_ratelimit_zone_min_size() / 1024);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_ratelimit_zone_memory(ngx_conf_t *cf,
    ngx_http_ratelimit_zone_t *zone, size_t size)
{
    ngx_int_t  rc;

    zone->limiter.zone.leased = (zone->redis.len != 0);

    rc = ngx_ratelimit_zone_add(cf, &zone->limiter.zone, size,
                                &ngx_http_ratelimit_module);

    if (rc == NGX_DECLINED) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_zone\" \"%V\" is defined twice, "
                           "expected one of each name",
                           &zone->limiter.zone.name);
    }

    return (rc == NGX_OK) ? NGX_OK : NGX_ERROR;
}


/* With a limit the zone has a rule of its own name that counts by its key. */
static ngx_int_t
ngx_http_ratelimit_zone_rule(ngx_conf_t *cf,
    ngx_http_ratelimit_main_conf_t *conf, ngx_http_ratelimit_zone_t *zone,
    ngx_http_ratelimit_rule_t *rule)
{
    if (rule->seen == 0) {
        return NGX_OK;
    }

    rule->rule.id = zone->limiter.zone.name;
    rule->zone = zone->limiter.zone.name;

    return ngx_http_ratelimit_rule_enter(cf, "ratelimit_zone", conf, rule);
}


/* When all is read: what a zone needs that follows a document. */
ngx_int_t
ngx_http_ratelimit_zone_follow(ngx_conf_t *cf,
    ngx_http_ratelimit_main_conf_t *conf, ngx_http_ratelimit_zone_t *zone)
{
    ngx_uint_t                   i;
    ngx_core_conf_t             *ccf;
    ngx_http_ratelimit_zone_t  **zones;

    if (!zone->limiter.follows) {
        return NGX_OK;
    }

    zones = conf->zones.elts;

    for (i = 0; zones[i] != zone; i++) {
        if (zone->limiter.state.len
            && ngx_http_ratelimit_equal(&zones[i]->limiter.state,
                                        &zone->limiter.state))
        {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "\"ratelimit_zone\" \"%V\" has \"state=%V\", "
                          "expected another file than that of zone \"%V\" "
                          "in %V:%ui", &zone->limiter.zone.name,
                          &zone->limiter.state, &zones[i]->limiter.zone.name,
                          &zone->place.file, zone->place.line);
            return NGX_ERROR;
        }
    }

    ngx_ratelimit_document_init();

    /*
     * A single process does jobs in the loop. A pool would be the end of it
     * after a reload: nginx ends the threads of the last configuration, and has
     * started those of the first alone.
     */

    ccf = (ngx_core_conf_t *) ngx_get_conf(cf->cycle->conf_ctx,
                                           ngx_core_module);

    if (ccf->master != 0 && ngx_ratelimit_job_prepare(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_ratelimit_sync_prepare(cf, &zone->limiter,
                                      &ngx_http_ratelimit_module);
}
