/*
 * Questions to the script of documents (lua/rules.lua), and its answers.
 */

#include "ngx_rl_sync_int.h"

#include "ngx_rl_leases.h"
#include "ngx_rl_text.h"

#define NGX_RL_SYNC_ARGS  6


ngx_rl_redis_call_t *
ngx_rl_sync_ask(ngx_rl_sync_t *sync, ngx_rl_redis_handler_pt handler,
    void *data, const char *operation, const char *format,
    const uint64_t *numbers, const ngx_str_t *text)
{
    u_char      buf[NGX_RL_SYNC_ARGS][NGX_INT64_LEN + 1];
    ngx_str_t   args[NGX_RL_SYNC_ARGS], *arg;

    args[0].data = (u_char *) operation;
    args[0].len = ngx_strlen(operation);

    for (arg = &args[1]; *format; arg++, format++) {

        if (*format == 's') {
            *arg = *text;
            continue;
        }

        arg->data = buf[arg - args];
        arg->len = ngx_sprintf(arg->data, (*format == 'i') ? "%016xL" : "%uL",
                               *numbers++)
                   - arg->data;
    }

    return ngx_rl_redis_control_rules(sync->limiter->redis,
                                      &sync->limiter->zone.name, args,
                                      arg - args, handler, data);
}


/* Where there is no record, the script calls its id "0". */
ngx_rl_redis_call_t *
ngx_rl_sync_ask_put(ngx_rl_sync_t *sync, ngx_rl_redis_handler_pt handler,
    void *data, uint64_t expected, uint64_t expected_id,
    const ngx_rl_store_entry_t *entry)
{
    uint64_t  numbers[4];

    numbers[0] = expected;
    numbers[1] = expected ? expected_id : 0;
    numbers[2] = entry->version;
    numbers[3] = entry->id;

    return ngx_rl_sync_ask(sync, handler, data, "put",
                           expected ? "vivis" : "vvvis", numbers, &entry->text);
}


ngx_int_t
ngx_rl_sync_number(const ngx_rl_redis_result_t *result, ngx_uint_t i,
    uint64_t *number)
{
    return (i < result->n
            && ngx_rl_number_parse(result->texts[i].data,
                                   result->texts[i].len, 0,
                                   NGX_RL_SYNC_LATEST, number)
               == 0)
           ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_rl_sync_version(const ngx_rl_redis_result_t *result, ngx_uint_t i,
    uint64_t *version, uint64_t *id)
{
    size_t      n;
    ngx_int_t   high, low;
    ngx_str_t  *text;

    if (i + 1 >= result->n
        || ngx_rl_sync_number(result, i, version) != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* ngx_hextoi() reads no number of 64 bits */

    text = &result->texts[i + 1];
    n = (text->len == 16) ? 8 : 0;
    high = n ? ngx_hextoi(text->data, n) : 0;
    low = ngx_hextoi(text->data + n, text->len - n);

    if (high == NGX_ERROR || low == NGX_ERROR || text->len > 16) {
        return NGX_ERROR;
    }

    *id = (uint64_t) high << 32 | (uint64_t) low;

    return NGX_OK;
}


void
ngx_rl_sync_resets(ngx_rl_sync_t *sync, uint64_t resets)
{
    if (sync->limiter->store->resets == resets) {
        return;
    }

    sync->limiter->store->resets = resets;

    if (sync->limiter->zone.leases) {
        ngx_rl_leases_forget(sync->limiter->zone.leases,
                             (uint64_t) ngx_current_msec * 1000);
    }
}
