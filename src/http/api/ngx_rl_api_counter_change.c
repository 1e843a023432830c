/*
 * A change of a counter: PATCH gives tokens back or sets what is used, DELETE
 * resets it.
 */

#include "ngx_rl_api_counters.h"

#include <jansson.h>

/* bytes of a change: no thread reads it */
#define NGX_RL_API_AMOUNT    1024


/* {"add": 500} or {"used": 0}. NGX_DECLINED, or it is answered. */
static ngx_int_t
ngx_rl_api_counter_amount(ngx_rl_api_counters_t *all)
{
    double             tokens;
    json_t            *json, *value;
    ngx_str_t         *text;
    ngx_uint_t         add, known, valid;
    ngx_rl_inspect_t  *inspect;
    ngx_rl_api_t      *api;

    static const ngx_str_t  whole = ngx_string("");
    static const ngx_str_t  members[] = {
        ngx_string("/used"), ngx_string("/add") };

    api = all->api;
    text = &api->body.text;
    inspect = &all->counters[0].inspect;

    if (inspect->limit->capacity == 0) {
        return ngx_rl_api_problem(api, 422, "invalid",
                   "rule \"%V\" counts nothing of this key: its limit is %s; "
                   "nothing is changed", &inspect->rule->id,
                   inspect->limit->unlimited ? "\"unlimited\"" : "0");
    }

    if (inspect->limit->algorithm == NGX_RL_CONCURRENCY) {
        return ngx_rl_api_problem(api, 422, "invalid",
            "rule \"%V\" has algorithm=concurrency: it counts requests in "
            "flight, which come back when they end. Expected a rule of another "
            "algorithm; nothing is changed", &inspect->rule->id);
    }

    json = (text->len <= NGX_RL_API_AMOUNT)
           ? json_loadb((char *) text->data, text->len,
                        JSON_REJECT_DUPLICATES, NULL)
           : NULL;

    add = (json_object_get(json, "add") != NULL);
    value = json_object_get(json, add ? "add" : "used");
    tokens = json_number_value(value);

    known = (value && json_object_size(json) == 1);
    valid = (json_is_number(value) && tokens >= (double) add
             && tokens <= (double) inspect->limit->capacity
             && tokens <= (double) (uint32_t) tokens);

    json_decref(json);

    if (known && valid) {
        *(add ? &inspect->add : &inspect->used) = (uint32_t) tokens;
        inspect->reset = !add;
        return NGX_DECLINED;
    }

    if (ngx_rl_problems_init(&all->problems, api->request->pool) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (known) {
        ngx_rl_problem(&all->problems, &members[add],
            "must be a whole number from %ui to %uD, the limit of the counter; "
            "an override allows more", add, inspect->limit->capacity);
    } else {
        ngx_rl_problem(&all->problems, &whole,
                       "must be {\"add\": <tokens>} or {\"used\": <tokens>}");
    }

    api->problems = &all->problems;

    return ngx_rl_api_problem(api, 422, "invalid",
               "the change is not valid; nothing is changed");
}


/* Keeps the names for the log line, as long as the request. */
static ngx_int_t
ngx_rl_api_counter_name(ngx_rl_api_counters_t *all)
{
    u_char            *p;
    ngx_rl_inspect_t  *inspect;

    p = ngx_pnalloc(all->api->request->pool,
                    sizeof("a counter is set to  used") + NGX_INT_T_LEN);

    if (p == NULL || ngx_rl_api_record(all->api, &all->record) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    inspect = &all->counters[0].inspect;
    all->change.data = p;

    p = inspect->add ? ngx_sprintf(p, "a counter gets %uD more", inspect->add)
      : inspect->used ? ngx_sprintf(p, "a counter is set to %uD used",
                                    inspect->used)
      : ngx_sprintf(p, "a counter is reset");

    all->change.len = p - all->change.data;

    return NGX_DECLINED;
}


ngx_int_t
ngx_rl_api_counter_change(ngx_rl_api_counters_t *all)
{
    ngx_int_t      rc;
    ngx_rl_api_t  *api;

    api = all->api;

    rc = ngx_rl_api_reason(api);

    if (rc == NGX_DECLINED && api->request->method == NGX_HTTP_PATCH) {
        rc = ngx_rl_api_counter_amount(all);

    } else {
        all->counters[0].inspect.reset = 1;
    }

    if (rc == NGX_DECLINED) {
        rc = ngx_rl_api_counter_name(all);
    }

    api->writing = 1;

    return rc;
}


void
ngx_rl_api_counter_log(ngx_rl_api_counters_t *all, ngx_uint_t made)
{
    u_char     buf[sizeof("perhaps a counter is set to  used") + NGX_INT_T_LEN];
    ngx_str_t  what;

    if (all->change.len == 0) {
        return;
    }

    what.data = buf;
    what.len = ngx_sprintf(buf, "%s%V", made ? "" : "perhaps ", &all->change)
               - buf;

    ngx_rl_sync_log(all->api->conf->limiter, &what, &all->record);

    all->change.len = 0;
}
