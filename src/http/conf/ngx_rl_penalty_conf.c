/*
 * "ratelimit_penalty": its parameters are rows of a table.
 */

#include "ngx_rl_conf.h"

#include "ngx_rl_text.h"

#define NGX_RL_PENALTY_HOLD_MS  30000       /* the most */
#define NGX_RL_PENALTY_MAX_MS   86400000    /* the default */
#define NGX_RL_PENALTY_MAX_S    (366 * 86400)
#define NGX_RL_PENALTY_GROWTH   2000

/*
 * Returns NULL, or what is expected. An empty text: the reason is logged.
 */
typedef const char *(*ngx_rl_penalty_pt)(ngx_conf_t *cf,
    ngx_rl_penalty_conf_t *conf, ngx_str_t *value);

typedef struct {
    ngx_str_t          name;     /* with its "=" */
    ngx_rl_penalty_pt  set;
    unsigned           needed:1;
} ngx_rl_penalty_param_t;


static const char *
ngx_rl_penalty_zone(ngx_conf_t *cf, ngx_rl_penalty_conf_t *conf,
    ngx_str_t *value)
{
    conf->zone = *value;

    return value->len ? NULL : "the name of a zone";
}


static const char *
ngx_rl_penalty_of_key(ngx_conf_t *cf, ngx_rl_penalty_conf_t *conf,
    ngx_str_t *value)
{
    if (value->len == 0) {
        return "a value with variables";
    }

    conf->penalty.key = *value;
    ngx_rl_key_warn(cf, value);

    return (ngx_rl_value_compile(cf, value, &conf->key) == NGX_OK) ? NULL : "";
}


/* An exact count: a sliding log. */
static const char *
ngx_rl_penalty_after(ngx_conf_t *cf, ngx_rl_penalty_conf_t *conf,
    ngx_str_t *value)
{
    const char     *expected;
    ngx_rl_spec_t   spec;

    ngx_memzero(&spec, sizeof(ngx_rl_spec_t));
    spec.algorithm = NGX_RL_SLIDING_LOG;

    expected = ngx_rl_rate_parse(value->data, value->len, &spec.tokens,
                                 &spec.period_us);

    if (expected) {
        return expected;
    }

    return ngx_rl_limit_init(&conf->penalty.after, &spec)
           ? "a rate of at most 10000 requests" : NULL;
}


static const char *
ngx_rl_penalty_span(ngx_str_t *value, uint64_t *ms)
{
    ngx_int_t  seconds;

    seconds = value->len ? ngx_parse_time(value, 1) : NGX_ERROR;

    if (seconds < 1 || seconds > NGX_RL_PENALTY_MAX_S) {
        return "a time from 1s to 366d";
    }

    *ms = (uint64_t) seconds * 1000;

    return NULL;
}


static const char *
ngx_rl_penalty_time(ngx_conf_t *cf, ngx_rl_penalty_conf_t *conf,
    ngx_str_t *value)
{
    return ngx_rl_penalty_span(value, &conf->penalty.time.time_ms);
}


static const char *
ngx_rl_penalty_action(ngx_conf_t *cf, ngx_rl_penalty_conf_t *conf,
    ngx_str_t *value)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_RL_PENALTY_ACTIONS; i++) {

        if (value->len == ngx_strlen(ngx_rl_penalty_actions[i])
            && ngx_strncmp(value->data, ngx_rl_penalty_actions[i], value->len)
               == 0)
        {
            conf->penalty.action = (ngx_rl_penalty_action_e) i;
            return NULL;
        }
    }

    return "\"ban\", \"close\" or \"delay\"";
}


/* "rejected", statuses, or both, with commas between them. */
static const char *
ngx_rl_penalty_on(ngx_conf_t *cf, ngx_rl_penalty_conf_t *conf, ngx_str_t *value)
{
    u_char      *p, *end, *last;
    uint64_t     number;
    ngx_uint_t  *status;

    last = value->data + value->len;

    for (p = value->data; p <= last; p = end + 1) {
        end = ngx_strlchr(p, last, ',');

        if (end == NULL) {
            end = last;
        }

        if (end - p == sizeof("rejected") - 1
            && ngx_strncmp(p, "rejected", end - p) == 0)
        {
            conf->penalty.rejected = 1;
            continue;
        }

        if (ngx_rl_number_parse(p, end - p, 200, 599, &number) != 0) {
            return "\"rejected\" or statuses from 200 to 599";
        }

        if (conf->penalty.statuses == NULL) {
            conf->penalty.statuses = ngx_array_create(cf->pool, 4,
                                                      sizeof(ngx_uint_t));
            if (conf->penalty.statuses == NULL) {
                return "";
            }
        }

        status = ngx_array_push(conf->penalty.statuses);
        if (status == NULL) {
            return "";
        }

        *status = (ngx_uint_t) number;
    }

    return NULL;
}


static const char *
ngx_rl_penalty_growth(ngx_conf_t *cf, ngx_rl_penalty_conf_t *conf,
    ngx_str_t *value)
{
    ngx_int_t  thousandths;

    thousandths = ngx_atofp(value->data, value->len, 3);

    if (thousandths < 1000 || thousandths > 1000000) {
        return "a number from 1 to 1000";
    }

    conf->penalty.time.growth = thousandths;

    return NULL;
}


static const char *
ngx_rl_penalty_max(ngx_conf_t *cf, ngx_rl_penalty_conf_t *conf,
    ngx_str_t *value)
{
    return ngx_rl_penalty_span(value, &conf->penalty.time.max_ms);
}


static const ngx_rl_penalty_param_t
    ngx_rl_penalty_params[] =
{
    { ngx_string("zone="), ngx_rl_penalty_zone, 1 },
    { ngx_string("key="), ngx_rl_penalty_of_key, 0 },
    { ngx_string("after="), ngx_rl_penalty_after, 1 },
    { ngx_string("time="), ngx_rl_penalty_time, 1 },
    { ngx_string("action="), ngx_rl_penalty_action, 0 },
    { ngx_string("on="), ngx_rl_penalty_on, 0 },
    { ngx_string("growth="), ngx_rl_penalty_growth, 0 },
    { ngx_string("max="), ngx_rl_penalty_max, 0 },
    { ngx_null_string, NULL, 0 }
};


/* says has a bit for each parameter that was read. */
static ngx_int_t
ngx_rl_penalty_parameter(ngx_conf_t *cf, ngx_rl_penalty_conf_t *conf,
    ngx_str_t *text, ngx_uint_t *says)
{
    ngx_str_t                      value;
    ngx_uint_t                     bit;
    const char                    *expected;
    ngx_rl_hint_t                  hint;
    const ngx_rl_penalty_param_t  *param;

    ngx_rl_hint_init(&hint, text);

    for (param = ngx_rl_penalty_params; param->set; param++) {

        if (ngx_rl_parameter(text, (char *) param->name.data, &value)) {
            break;
        }

        ngx_rl_hint_add(&hint, &param->name);
    }

    if (param->set == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_penalty\" has an unknown parameter "
                           "\"%V\", %V",
                           text, ngx_rl_hint_text(&hint, ""));
        return NGX_ERROR;
    }

    bit = (ngx_uint_t) 1 << (param - ngx_rl_penalty_params);

    if (*says & bit) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_penalty\" has \"%V\", expected one "
                           "\"%V\"", text, &param->name);
        return NGX_ERROR;
    }

    *says |= bit;
    expected = param->set(cf, conf, &value);

    if (expected == NULL) {
        return NGX_OK;
    }

    if (expected[0]) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_penalty\" has an invalid \"%V\", "
                           "expected %s", text, expected);
    }

    return NGX_ERROR;
}


static ngx_int_t
ngx_rl_penalty_complete(ngx_conf_t *cf, ngx_rl_penalty_conf_t *conf,
    ngx_uint_t says)
{
    ngx_uint_t                     i;
    ngx_rl_penalty_t              *penalty;
    const ngx_rl_penalty_param_t  *param;

    penalty = &conf->penalty;
    param = ngx_rl_penalty_params;

    for (i = 0; param[i].set; i++) {
        if (param[i].needed && !(says >> i & 1)) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"ratelimit_penalty\" \"%V\" has no \"%V\"",
                               &penalty->id, &param[i].name);
            return NGX_ERROR;
        }
    }

    if (penalty->action == NGX_RL_PENALTY_DELAY
        && penalty->time.time_ms > NGX_RL_PENALTY_HOLD_MS)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_penalty\" \"%V\" has \"action=delay\", "
                           "expected a \"time=\" of at most 30s",
                           &penalty->id);
        return NGX_ERROR;
    }

    if (penalty->time.max_ms == 0) {
        penalty->time.max_ms = ngx_max(penalty->time.time_ms,
                                       NGX_RL_PENALTY_MAX_MS);
    }

    if (penalty->time.max_ms < penalty->time.time_ms) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_penalty\" \"%V\" has a \"max=\" below "
                           "its \"time=\"", &penalty->id);
        return NGX_ERROR;
    }

    if (penalty->statuses == NULL) {
        penalty->rejected = 1;
    }

    return NGX_OK;
}


/* ratelimit_penalty <id> zone=<zone> after=<rate> time=<time> ... */
char *
ngx_rl_penalty_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_main_conf_t *rmcf = conf;

    ngx_str_t              *value;
    ngx_uint_t              i, says;
    ngx_rl_penalty_conf_t  *penalty;

    value = cf->args->elts;

    if (!ngx_rl_name_valid(value[1].data, value[1].len)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_penalty\" has an invalid name \"%V\", "
                           "expected 1 to 64 of A-Z, a-z, 0-9, \"_\", "
                           "\".\", \"-\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    penalty = ngx_pcalloc(cf->pool, sizeof(ngx_rl_penalty_conf_t));
    if (penalty == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_rl_place(cf, &penalty->place);
    penalty->penalty.id = value[1];
    penalty->penalty.data = &penalty->key;
    penalty->penalty.time.growth = NGX_RL_PENALTY_GROWTH;

    says = 0;

    for (i = 2; i < cf->args->nelts; i++) {
        if (ngx_rl_penalty_parameter(cf, penalty, &value[i], &says) != NGX_OK) {
            return NGX_CONF_ERROR;
        }
    }

    return (ngx_rl_penalty_complete(cf, penalty, says) == NGX_OK
            && ngx_rl_push(&rmcf->penalties, penalty) == NGX_OK)
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static ngx_int_t
ngx_rl_penalty_resolve(ngx_conf_t *cf, ngx_rl_main_conf_t *conf,
    ngx_rl_penalty_conf_t *penalty)
{
    ngx_uint_t           i;
    ngx_rl_hint_t        hint;
    ngx_rl_zone_conf_t  *zone;
    ngx_rl_limiter_t    *limiter;
    ngx_rl_penalty_t   **others;

    zone = ngx_rl_zone_by_name(conf, &penalty->zone);

    if (zone == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"ratelimit_penalty\" \"%V\" has an unknown "
                      "\"zone=%V\", %V in %V:%ui", &penalty->penalty.id,
                      &penalty->zone,
                      ngx_rl_hint_zones(&hint, conf, &penalty->zone),
                      &penalty->place.file, penalty->place.line);
        return NGX_ERROR;
    }

    limiter = &zone->limiter;
    penalty->penalty.limiter = limiter;

    if (penalty->penalty.key.len == 0) {
        penalty->penalty.key = limiter->zone.key;
        penalty->key = zone->key;
    }

    if (limiter->penalties == NULL) {
        limiter->penalties = ngx_array_create(cf->pool, 2, sizeof(void *));

        if (limiter->penalties == NULL
            || ngx_rl_zone_penalize(cf, &limiter->zone, limiter->clear,
                                    &ngx_http_ratelimit_module)
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    others = limiter->penalties->elts;

    for (i = 0; i < limiter->penalties->nelts; i++) {
        if (ngx_rl_equal(&others[i]->id, &penalty->penalty.id)) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "zone \"%V\" has two penalties \"%V\", the second "
                          "in %V:%ui", &penalty->zone, &penalty->penalty.id,
                          &penalty->place.file, penalty->place.line);
            return NGX_ERROR;
        }
    }

    if (ngx_rl_penalty_prepare(&penalty->penalty, cf->pool) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_rl_push(limiter->penalties, &penalty->penalty);
}


ngx_int_t
ngx_rl_penalties_resolve(ngx_conf_t *cf, ngx_rl_main_conf_t *conf)
{
    ngx_uint_t               i;
    ngx_rl_penalty_conf_t  **penalties;

    penalties = conf->penalties.elts;

    for (i = 0; i < conf->penalties.nelts; i++) {
        if (ngx_rl_penalty_resolve(cf, conf, penalties[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}
