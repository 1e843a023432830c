/*
 * The module's entry points: its directives, its configurations, and the hooks
 * of a cycle and of a worker.
 */

#include "ngx_rl_api.h"
#include "ngx_rl_conf.h"
#include "ngx_rl_key.h"

#include "ngx_rl_fleet.h"
#include "ngx_rl_job.h"
#include "ngx_rl_penalty.h"
#include "ngx_rl_state.h"
#include "ngx_rl_follow.h"

#define NGX_RL_STATUS    429

#define NGX_RL_ANY                                                            \
    NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF

/* what a location does not have is NULL */
#define ngx_rl_inherit(member)                                                \
    conf->member = conf->member ? conf->member : prev->member

static ngx_conf_enum_t  ngx_rl_phases[] = {
    { ngx_string("before_auth"), NGX_RL_BEFORE_AUTH },
    { ngx_string("after_auth"), NGX_RL_AFTER_AUTH },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_rl_fail_modes[] = {
    { ngx_string("open"), NGX_RL_FAIL_OPEN },
    { ngx_string("local"), NGX_RL_FAIL_LOCAL },
    { ngx_string("closed"), NGX_RL_FAIL_CLOSED },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_rl_responses[] = {
    { ngx_string("json"), NGX_RL_RESPONSE_JSON },
    { ngx_string("problem"), NGX_RL_RESPONSE_PROBLEM },
    { ngx_string("off"), NGX_RL_RESPONSE_OFF },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_rl_jwt_invalids[] = {
    { ngx_string("anonymous"), NGX_RL_JWT_ANONYMOUS },
    { ngx_string("reject"), NGX_RL_JWT_REJECT },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_rl_log_levels[] = {
    { ngx_string("info"), NGX_LOG_INFO },
    { ngx_string("notice"), NGX_LOG_NOTICE },
    { ngx_string("warn"), NGX_LOG_WARN },
    { ngx_string("error"), NGX_LOG_ERR },
    { ngx_null_string, 0 }
};

static const ngx_rl_number_t  ngx_rl_statuses = {
    400, 599, "", "a status from 400 to 599"
};

static const ngx_rl_number_t  ngx_rl_percents = {
    0, 100, "%", "a percentage from 0% to 100%"
};

static const ngx_rl_number_t  ngx_rl_rejections = {
    0, 1000000, "", "a number of rejections from 0 to 1000000"
};


static void *
ngx_http_ratelimit_create_main_conf(ngx_conf_t *cf)
{
    ngx_uint_t           i;
    ngx_rl_main_conf_t  *conf;

    static const size_t  pointers[] = {
        offsetof(ngx_rl_main_conf_t, lists),
        offsetof(ngx_rl_main_conf_t, zones),
        offsetof(ngx_rl_main_conf_t, rules),
        offsetof(ngx_rl_main_conf_t, limits),
        offsetof(ngx_rl_main_conf_t, redis),
        offsetof(ngx_rl_main_conf_t, apis),
        offsetof(ngx_rl_main_conf_t, penalties),
        offsetof(ngx_rl_main_conf_t, sources),
        offsetof(ngx_rl_main_conf_t, jwt_keys),
        offsetof(ngx_rl_main_conf_t, fleets) };

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_rl_main_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    for (i = 0; i < sizeof(pointers) / sizeof(pointers[0]); i++) {
        if (ngx_array_init((void *) ((u_char *) conf + pointers[i]), cf->pool,
                           4, sizeof(void *))
            != NGX_OK)
        {
            return NULL;
        }
    }

    if (ngx_array_init(&conf->redis_names, cf->pool, 2,
                       sizeof(ngx_rl_redis_name_t))
        != NGX_OK)
    {
        return NULL;
    }

    conf->logs = ngx_pcalloc(cf->pool, NGX_RL_LOG_KINDS
                                       * sizeof(ngx_rl_log_limit_t));
    conf->held = ngx_pcalloc(cf->pool, sizeof(ngx_uint_t));

    return (conf->logs && conf->held) ? conf : NULL;
}


static void *
ngx_http_ratelimit_create_loc_conf(ngx_conf_t *cf)
{
    ngx_rl_loc_conf_t  *conf;

    /* limits, api, guard, page, tier, explain, sources, jwt_key, once,
       routes = NULL; exempt, limited, checks, needs = 0 */
    conf = ngx_pcalloc(cf->pool, sizeof(ngx_rl_loc_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    conf->headers = NGX_CONF_UNSET_UINT;
    conf->response = NGX_CONF_UNSET_UINT;
    conf->status = NGX_CONF_UNSET_UINT;
    conf->penalty_status = NGX_CONF_UNSET_UINT;
    conf->retry_jitter = NGX_CONF_UNSET_UINT;
    conf->close_after = NGX_CONF_UNSET_UINT;
    conf->log_level = NGX_CONF_UNSET_UINT;
    conf->phase = NGX_CONF_UNSET_UINT;
    conf->fail_mode = NGX_CONF_UNSET_UINT;
    conf->dry_run = NGX_CONF_UNSET;
    conf->jwt_invalid = NGX_CONF_UNSET_UINT;
    conf->prefix_v4 = NGX_CONF_UNSET_UINT;
    conf->prefix_v6 = NGX_CONF_UNSET_UINT;

    return conf;
}


static char *
ngx_http_ratelimit_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_rl_loc_conf_t *prev = parent;
    ngx_rl_loc_conf_t *conf = child;

    ngx_rl_main_conf_t  *rmcf;

    if (ngx_rl_api_merge(cf, prev, conf) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    if (conf->limits == NULL) {
        conf->limits = prev->limits;

    } else {
        conf->exempt = 0;
    }

    ngx_rl_inherit(tier);
    ngx_rl_inherit(once);
    ngx_rl_inherit(explain);
    ngx_rl_inherit(jwt_key);
    ngx_rl_inherit(routes);
    ngx_conf_merge_uint_value(conf->fail_mode, prev->fail_mode,
                              NGX_RL_FAIL_OPEN);
    ngx_rl_limit_location(cf, conf);
    ngx_rl_inherit(sources);

    if (conf->sources == NULL) {
        conf->sources = &ngx_rl_default_sources;
    }

    ngx_conf_merge_uint_value(conf->headers, prev->headers, NGX_RL_HEADERS_X);
    ngx_conf_merge_uint_value(conf->response, prev->response,
                              NGX_RL_RESPONSE_JSON);
    ngx_conf_merge_uint_value(conf->status, prev->status, NGX_RL_STATUS);
    ngx_conf_merge_uint_value(conf->penalty_status, prev->penalty_status,
                              NGX_CONF_UNSET_UINT);
    ngx_conf_merge_uint_value(conf->retry_jitter, prev->retry_jitter, 0);
    ngx_conf_merge_uint_value(conf->close_after, prev->close_after, 0);
    ngx_conf_merge_uint_value(conf->log_level, prev->log_level, NGX_LOG_INFO);
    ngx_conf_merge_uint_value(conf->phase, prev->phase, NGX_RL_BEFORE_AUTH);
    ngx_conf_merge_value(conf->dry_run, prev->dry_run, 0);
    ngx_conf_merge_uint_value(conf->jwt_invalid, prev->jwt_invalid,
                              NGX_RL_JWT_ANONYMOUS);
    ngx_conf_merge_uint_value(conf->prefix_v4, prev->prefix_v4, 32);
    ngx_conf_merge_uint_value(conf->prefix_v6, prev->prefix_v6, 64);

    conf->needs = conf->jwt_key ? NGX_RL_NEEDS_CLAIMS : 0;

    if (conf->once && conf->once->key) {
        conf->needs |= NGX_RL_NEEDS_ONCE;
    }

    if (conf->jwt_key && conf->jwt_invalid == NGX_RL_JWT_REJECT) {
        conf->needs |= NGX_RL_NEEDS_TOKEN;
    }

    conf->limited = (conf->limits && conf->limits->nelts && !conf->exempt);

    if (conf->limited || (conf->explain && conf->explain->nelts)) {
        conf->checks = conf->phase;

        rmcf = ngx_http_conf_get_module_main_conf(cf,
                                                  ngx_http_ratelimit_module);
        rmcf->phases |= conf->phase;
    }

    return ngx_rl_api_key_check(cf, prev, conf);
}


static ngx_int_t
ngx_http_ratelimit_add_handler(ngx_conf_t *cf, ngx_uint_t phase)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[phase].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_rl_handler;

    return NGX_OK;
}


/* Only the phases in which a location checks requests get a handler. */
static ngx_int_t
ngx_http_ratelimit_init(ngx_conf_t *cf)
{
    ngx_rl_main_conf_t  *conf;

    if (ngx_rl_resolve(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    conf = ngx_http_conf_get_module_main_conf(cf, ngx_http_ratelimit_module);

    ngx_rl_value_resolve(cf, &conf->sources);

    if ((conf->phases & NGX_RL_BEFORE_AUTH)
        && ngx_http_ratelimit_add_handler(cf, NGX_HTTP_ACCESS_PHASE) != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* behind the access phase: "satisfy any" ends that where one grants */

    if ((conf->phases & NGX_RL_AFTER_AUTH)
        && ngx_http_ratelimit_add_handler(cf, NGX_HTTP_PRECONTENT_PHASE)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (conf->phases == 0) {
        return NGX_OK;
    }

    return ngx_rl_headers_init(cf);
}


static ngx_int_t
ngx_http_ratelimit_init_module(ngx_cycle_t *cycle)
{
    ngx_int_t             rc;
    ngx_uint_t            i;
    ngx_core_conf_t      *ccf;
    ngx_rl_fleet_t      **fleets;
    ngx_rl_limiter_t     *limiter;
    ngx_rl_zone_conf_t  **zones;
    ngx_rl_main_conf_t   *conf;

    conf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_ratelimit_module);
    if (conf == NULL) {
        return NGX_OK;
    }

    ngx_rl_phases_init(cycle);

    fleets = conf->fleets.elts;

    for (i = 0; i < conf->fleets.nelts; i++) {
        ngx_rl_fleet_name(fleets[i]);
    }

    ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx, ngx_core_module);
    zones = conf->zones.elts;

    for (i = 0; i < conf->zones.nelts; i++) {
        limiter = &zones[i]->limiter;

        rc = limiter->state.len
             ? ngx_rl_state_check(&limiter->state, ccf->user, ccf->group,
                                  ccf->username)
             : NGX_OK;

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_DECLINED) {
            ngx_log_error(NGX_LOG_WARN, cycle->log, ngx_errno,
                          "\"ratelimit_zone\" \"%V\" has \"state=%V\", "
                          "expected a file in a folder where the user of the "
                          "workers may write", &limiter->zone.name,
                          &limiter->state);
        }

        /* a document that is not kept is gone after a restart */

        if (limiter->state.len == 0 && limiter->follows && limiter->redis) {
            ngx_log_error(NGX_LOG_WARN, cycle->log, 0,
                          "\"ratelimit_zone\" \"%V\" has no \"state=\": "
                          "after a restart, its document counts only when "
                          "Redis answers", &limiter->zone.name);
        }

        /* by now nginx keeps no list of regular expressions any more */

        if (ngx_test_config) {
            ngx_rl_follow_test(limiter, cycle->log);
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_ratelimit_init_process(ngx_cycle_t *cycle)
{
    ngx_uint_t            i;
    ngx_rl_fleet_t      **fleets;
    ngx_rl_redis_t      **redis;
    ngx_rl_limiter_t     *limiter;
    ngx_rl_zone_conf_t  **zones;
    ngx_rl_main_conf_t   *conf;

    /* the cache manager serves no request */

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
    {
        return NGX_OK;
    }

    conf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_ratelimit_module);
    if (conf == NULL) {
        return NGX_OK;
    }

    zones = conf->zones.elts;

    if (conf->zones.nelts
        && ngx_rl_zone_begin(&zones[0]->limiter.zone, cycle->log) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_rl_jwt_key_begin(conf, cycle->log);

    fleets = conf->fleets.elts;

    for (i = 0; i < conf->fleets.nelts; i++) {
        ngx_rl_fleet_begin(fleets[i], cycle);
    }

    redis = conf->redis.elts;

    for (i = 0; i < conf->redis.nelts; i++) {
        if (ngx_rl_redis_start(redis[i], cycle) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    for (i = 0; i < conf->zones.nelts; i++) {
        limiter = &zones[i]->limiter;

        if (limiter->watch) {
            ngx_rl_watch_begin(limiter->watch, cycle->log);
        }

        ngx_rl_limiter_begin(limiter);

        if (limiter->watch) {
            ngx_rl_api_history_begin(limiter, cycle->log);
        }

        if (ngx_rl_refill_begin(limiter, cycle->log) != NGX_OK
            || ngx_rl_follow_begin(limiter, cycle) != NGX_OK
            || ngx_rl_penalty_sync_begin(limiter, cycle) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static void
ngx_http_ratelimit_exit_process(ngx_cycle_t *cycle)
{
    ngx_uint_t            i;
    ngx_rl_fleet_t      **fleets;
    ngx_rl_redis_t      **redis;
    ngx_rl_zone_conf_t  **zones;
    ngx_rl_main_conf_t   *conf;

    conf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_ratelimit_module);
    if (conf == NULL) {
        return;
    }

    /* first: a state file is written by then */

    ngx_rl_job_wait();

    zones = conf->zones.elts;

    for (i = 0; i < conf->zones.nelts; i++) {
        ngx_rl_refill_end(&zones[i]->limiter);
        ngx_rl_follow_end(&zones[i]->limiter);
        ngx_rl_penalty_sync_end(&zones[i]->limiter);
    }

    ngx_rl_counts_end();

    fleets = conf->fleets.elts;

    for (i = 0; i < conf->fleets.nelts; i++) {
        ngx_rl_fleet_end(fleets[i]);
    }

    /* last: it sends what leases give back */

    redis = conf->redis.elts;

    for (i = 0; i < conf->redis.nelts; i++) {
        if (redis[i]->client) {
            ngx_rl_redis_stop(redis[i]);
        }
    }
}


static ngx_command_t  ngx_http_ratelimit_commands[] = {

    { ngx_string("ratelimit_redis"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_BLOCK|NGX_CONF_TAKE1,
      ngx_rl_redis_block, NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL },

    { ngx_string("ratelimit_peers"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_BLOCK|NGX_CONF_TAKE1,
      ngx_rl_peers_block, NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL },

    { ngx_string("ratelimit_zone"), NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_rl_zone_directive, NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL },

    { ngx_string("ratelimit_rule"), NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_rl_rule_directive, NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL },

    { ngx_string("ratelimit_penalty"), NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_rl_penalty_directive, NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL },

    { ngx_string("ratelimit_deny"), NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_rl_access, NGX_HTTP_MAIN_CONF_OFFSET, 1, NULL },

    { ngx_string("ratelimit_allow"), NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_rl_access, NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL },

    { ngx_string("ratelimit"), NGX_RL_ANY|NGX_CONF_1MORE,
      ngx_rl_location_limit, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    { ngx_string("ratelimit_tier"), NGX_RL_ANY|NGX_CONF_TAKE1,
      ngx_rl_tier, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    { ngx_string("ratelimit_once"), NGX_RL_ANY|NGX_CONF_TAKE12,
      ngx_rl_once, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    { ngx_string("ratelimit_dry_run"), NGX_RL_ANY|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot, NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_rl_loc_conf_t, dry_run), NULL },

    { ngx_string("ratelimit_fail_mode"), NGX_RL_ANY|NGX_CONF_TAKE1,
      ngx_rl_set_enum, NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_rl_loc_conf_t, fail_mode), &ngx_rl_fail_modes },

    { ngx_string("ratelimit_phase"), NGX_RL_ANY|NGX_CONF_TAKE1,
      ngx_rl_set_enum, NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_rl_loc_conf_t, phase), &ngx_rl_phases },

    { ngx_string("ratelimit_api_key"), NGX_RL_ANY|NGX_CONF_1MORE,
      ngx_rl_api_key, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    { ngx_string("ratelimit_jwt_key"), NGX_RL_ANY|NGX_CONF_TAKE1234,
      ngx_rl_jwt_key, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    { ngx_string("ratelimit_jwt_invalid"), NGX_RL_ANY|NGX_CONF_TAKE1,
      ngx_rl_set_enum, NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_rl_loc_conf_t, jwt_invalid), &ngx_rl_jwt_invalids },

    { ngx_string("ratelimit_client_prefix"), NGX_RL_ANY|NGX_CONF_TAKE2,
      ngx_rl_client_prefix, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    { ngx_string("ratelimit_route"), NGX_RL_ANY|NGX_CONF_1MORE,
      ngx_rl_route_directive, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    { ngx_string("ratelimit_headers"), NGX_RL_ANY|NGX_CONF_1MORE,
      ngx_rl_set_headers, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    { ngx_string("ratelimit_response"), NGX_RL_ANY|NGX_CONF_TAKE1,
      ngx_rl_set_enum, NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_rl_loc_conf_t, response), &ngx_rl_responses },

    { ngx_string("ratelimit_log_level"), NGX_RL_ANY|NGX_CONF_TAKE1,
      ngx_rl_set_enum, NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_rl_loc_conf_t, log_level), &ngx_rl_log_levels },

    { ngx_string("ratelimit_status"), NGX_RL_ANY|NGX_CONF_TAKE1,
      ngx_rl_set_number, NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_rl_loc_conf_t, status), (void *) &ngx_rl_statuses },

    { ngx_string("ratelimit_penalty_status"), NGX_RL_ANY|NGX_CONF_TAKE1,
      ngx_rl_set_number, NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_rl_loc_conf_t, penalty_status), (void *) &ngx_rl_statuses },

    { ngx_string("ratelimit_retry_jitter"), NGX_RL_ANY|NGX_CONF_TAKE1,
      ngx_rl_set_number, NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_rl_loc_conf_t, retry_jitter), (void *) &ngx_rl_percents },

    { ngx_string("ratelimit_close_after"), NGX_RL_ANY|NGX_CONF_TAKE1,
      ngx_rl_set_number, NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_rl_loc_conf_t, close_after), (void *) &ngx_rl_rejections },

    { ngx_string("ratelimit_explain"), NGX_RL_ANY|NGX_CONF_TAKE1,
      ngx_rl_explain_conf, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    { ngx_string("ratelimit_metrics"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS|NGX_CONF_TAKE1,
      ngx_rl_metrics, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    { ngx_string("ratelimit_api"), NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1234,
      ngx_rl_api, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    { ngx_string("ratelimit_status_page"), NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_rl_status_page, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

      ngx_null_command
};

static ngx_http_module_t  ngx_http_ratelimit_module_ctx = {
    ngx_rl_add_variables,         /* preconfiguration */
    ngx_http_ratelimit_init,      /* postconfiguration */

    ngx_http_ratelimit_create_main_conf,   /* create main configuration */
    NULL,                                  /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_ratelimit_create_loc_conf,    /* create location configuration */
    ngx_http_ratelimit_merge_loc_conf      /* merge location configuration */
};

ngx_module_t  ngx_http_ratelimit_module = {
    NGX_MODULE_V1,
    &ngx_http_ratelimit_module_ctx,        /* module context */
    ngx_http_ratelimit_commands,           /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    ngx_http_ratelimit_init_module,        /* init module */
    ngx_http_ratelimit_init_process,       /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_ratelimit_exit_process,       /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};
