/*
 * "ratelimit_penalty": its parameters are rows of a table.
 */

#include "ngx_rl_conf.h"

#include "ngx_rl_text.h"

#define NGX_RL_PENALTY_HOLD_MS  30000       /* the most */
#define NGX_RL_PENALTY_MAX_MS   86400000    /* the default */
#define NGX_RL_PENALTY_MAX_S    (366 * 86400)
#define NGX_RL_PENALTY_GROWTH   2000

#define NGX_RL_PENALTY_AT(member)  offsetof(ngx_rl_penalty_conf_t, member)


static const char *
ngx_rl_penalty_key(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    ngx_rl_penalty_conf_t *conf = target;

    if (value->len == 0) {
        return row->expected;
    }

    conf->penalty.key = *value;

    return (ngx_rl_value_key_compile(cf, value, &conf->key) == NGX_OK) ? NULL
                                                                       : "";
}


/* An exact count: a sliding log. */
static const char *
ngx_rl_penalty_after(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    ngx_rl_penalty_conf_t *conf = target;

    const char     *expected;
    ngx_rl_spec_t   spec;

    ngx_memzero(&spec, sizeof(ngx_rl_spec_t));
    spec.algorithm = NGX_RL_SLIDING_LOG;

    expected = ngx_rl_rate_parse(value->data, value->len, &spec.tokens,
                                 &spec.period_us);
    if (expected) {
        return expected;
    }

    return ngx_rl_limit_init(&conf->penalty.after, &spec) ? row->expected
                                                          : NULL;
}


static const char *
ngx_rl_penalty_time(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    uint64_t   *ms;
    ngx_int_t   seconds;

    seconds = value->len ? ngx_parse_time(value, 1) : NGX_ERROR;

    if (seconds < 1 || seconds > NGX_RL_PENALTY_MAX_S) {
        return row->expected;
    }

    ms = ngx_rl_row_at(target, row);
    *ms = (uint64_t) seconds * 1000;

    return NULL;
}


static const char *
ngx_rl_penalty_action(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    ngx_rl_penalty_conf_t *conf = target;

    int  place;

    place = ngx_rl_names_find(ngx_rl_penalty_actions, value->data, value->len);

    if (place < 0) {
        return row->expected;
    }

    conf->penalty.action = (ngx_rl_penalty_action_e) place;

    return NULL;
}


/* "rejected", statuses, or both, with commas between them. */
static const char *
ngx_rl_penalty_on(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    u_char      *p, *end, *last;
    uint64_t     number;
    ngx_uint_t  *status;

    ngx_rl_penalty_t *penalty = &((ngx_rl_penalty_conf_t *) target)->penalty;

    last = value->data + value->len;

    for (p = value->data; p <= last; p = end + 1) {
        end = ngx_strlchr(p, last, ',');

        if (end == NULL) {
            end = last;
        }

        if (end - p == sizeof("rejected") - 1
            && ngx_strncmp(p, "rejected", end - p) == 0)
        {
            penalty->rejected = 1;
            continue;
        }

        if (ngx_rl_number_parse(p, end - p, 200, 599, &number) != 0) {
            return row->expected;
        }

        if (penalty->statuses == NULL) {
            penalty->statuses = ngx_array_create(cf->pool, 4,
                                                 sizeof(ngx_uint_t));
            if (penalty->statuses == NULL) {
                return "";
            }
        }

        status = ngx_array_push(penalty->statuses);
        if (status == NULL) {
            return "";
        }

        *status = (ngx_uint_t) number;
    }

    return NULL;
}


static const char *
ngx_rl_penalty_growth(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    ngx_rl_penalty_conf_t *conf = target;

    ngx_int_t  thousandths;

    thousandths = ngx_atofp(value->data, value->len, 3);

    if (thousandths < 1000 || thousandths > 1000000) {
        return row->expected;
    }

    conf->penalty.time.growth = thousandths;

    return NULL;
}


static const ngx_rl_row_t  ngx_rl_penalty_rows[] = {
    { ngx_string("zone="), ngx_rl_row_text, NGX_RL_PENALTY_AT(zone),
      .needed = 1, .expected = "the name of a zone" },
    { ngx_string("key="), ngx_rl_penalty_key,
      .expected = "a value with variables" },
    { ngx_string("after="), ngx_rl_penalty_after, .needed = 1,
      .expected = "a rate of at most 10000 requests" },
    { ngx_string("time="), ngx_rl_penalty_time,
      NGX_RL_PENALTY_AT(penalty.time.time_ms), .needed = 1,
      .expected = "a time from 1s to 366d" },
    { ngx_string("action="), ngx_rl_penalty_action,
      .expected = "\"ban\", \"close\" or \"delay\"" },
    { ngx_string("on="), ngx_rl_penalty_on,
      .expected = "\"rejected\" or statuses from 200 to 599" },
    { ngx_string("growth="), ngx_rl_penalty_growth,
      .expected = "a number from 1 to 1000" },
    { ngx_string("max="), ngx_rl_penalty_time,
      NGX_RL_PENALTY_AT(penalty.time.max_ms),
      .expected = "a time from 1s to 366d" },
    { .name = ngx_null_string }
};


/* ratelimit_penalty <id> zone=<zone> after=<rate> time=<time> ... */
char *
ngx_rl_penalty_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_main_conf_t *rmcf = conf;

    ngx_str_t              *id;
    ngx_rl_penalty_t       *penalty;
    ngx_rl_penalty_conf_t  *made;

    id = (ngx_str_t *) cf->args->elts + 1;

    if (!ngx_rl_name_valid(id->data, id->len)) {
        return ngx_rl_wrong(cf, "has an invalid name \"%V\", expected "
                            NGX_RL_NAME_EXPECTED, id);
    }

    made = ngx_pcalloc(cf->pool, sizeof(ngx_rl_penalty_conf_t));
    if (made == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_rl_place(cf, &made->place);

    penalty = &made->penalty;
    penalty->id = *id;
    penalty->data = &made->key;
    penalty->time.growth = NGX_RL_PENALTY_GROWTH;

    if (ngx_rl_rows_read(cf, ngx_rl_penalty_rows, made, 2, NULL)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (penalty->action == NGX_RL_PENALTY_DELAY
        && penalty->time.time_ms > NGX_RL_PENALTY_HOLD_MS)
    {
        return ngx_rl_wrong(cf, "\"%V\" has \"action=delay\", expected a "
                            "\"time=\" of at most 30s", id);
    }

    if (penalty->time.max_ms == 0) {
        penalty->time.max_ms = ngx_max(penalty->time.time_ms,
                                       NGX_RL_PENALTY_MAX_MS);
    }

    if (penalty->time.max_ms < penalty->time.time_ms) {
        return ngx_rl_wrong(cf, "\"%V\" has a \"max=\" below its \"time=\"",
                            id);
    }

    if (penalty->statuses == NULL) {
        penalty->rejected = 1;
    }

    return (ngx_rl_push(&rmcf->penalties, made) == NGX_OK) ? NGX_CONF_OK
                                                           : NGX_CONF_ERROR;
}


ngx_int_t
ngx_rl_penalty_resolve(ngx_conf_t *cf, ngx_rl_main_conf_t *conf, void *entry)
{
    ngx_rl_penalty_conf_t *penalty = entry;

    ngx_rl_zone_conf_t  *zone;
    ngx_rl_limiter_t    *limiter;

    zone = ngx_rl_zone_find(cf, conf, &penalty->zone, "ratelimit_penalty",
                            &penalty->penalty.id, &penalty->place);
    if (zone == NULL) {
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

    if (ngx_rl_named(limiter->penalties, offsetof(ngx_rl_penalty_t, id),
                     &penalty->penalty.id, NULL))
    {
        return ngx_rl_wrong_at(cf, NGX_LOG_EMERG, &penalty->place,
                               "zone \"%V\" has two penalties \"%V\", the "
                               "second", &penalty->zone, &penalty->penalty.id);
    }

    if (ngx_rl_penalty_prepare(&penalty->penalty, cf->pool) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_rl_push(limiter->penalties, &penalty->penalty);
}
