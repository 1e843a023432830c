/*
 * Questions to the script of documents (lua/rules.lua), and its answers.
 */

#include "ngx_ratelimit_sync_int.h"

#include "ngx_ratelimit_leases.h"

#define NGX_RATELIMIT_SYNC_ARGS  8

typedef struct {
    ngx_uint_t   n;
    ngx_str_t    args[NGX_RATELIMIT_SYNC_ARGS];
    u_char       text[NGX_RATELIMIT_SYNC_ARGS][NGX_INT64_LEN + 1];
} ngx_ratelimit_sync_request_t;


static void
ngx_ratelimit_sync_add_text(ngx_ratelimit_sync_request_t *request,
    const ngx_str_t *text)
{
    request->args[request->n++] = *text;
}


/* format: "%uL", or that of an id */
static void
ngx_ratelimit_sync_add(ngx_ratelimit_sync_request_t *request,
    const char *format, uint64_t number)
{
    u_char  *p;

    p = request->text[request->n];

    request->args[request->n].data = p;
    request->args[request->n].len = ngx_sprintf(p, format, number) - p;
    request->n++;
}


static ngx_ratelimit_redis_call_t *
ngx_ratelimit_sync_send(ngx_ratelimit_sync_t *sync,
    const ngx_ratelimit_sync_request_t *request,
    ngx_ratelimit_redis_handler_pt handler, void *data)
{
    return ngx_ratelimit_redis_control_rules(sync->control,
                                             &sync->limiter->zone.name,
                                             request->args, request->n,
                                             handler, data);
}


ngx_ratelimit_redis_call_t *
ngx_ratelimit_sync_ask_get(ngx_ratelimit_sync_t *sync, uint64_t version,
    uint64_t id, ngx_ratelimit_redis_handler_pt handler, void *data)
{
    ngx_ratelimit_sync_request_t  request;

    static const ngx_str_t  get = ngx_string("get");

    request.n = 0;
    ngx_ratelimit_sync_add_text(&request, &get);
    ngx_ratelimit_sync_add(&request, "%uL", version);
    ngx_ratelimit_sync_add(&request, "%016xL", id);

    return ngx_ratelimit_sync_send(sync, &request, handler, data);
}


ngx_ratelimit_redis_call_t *
ngx_ratelimit_sync_ask_put(ngx_ratelimit_sync_t *sync, uint64_t expected,
    uint64_t expected_id, const ngx_ratelimit_store_entry_t *entry,
    ngx_ratelimit_redis_handler_pt handler, void *data)
{
    ngx_ratelimit_sync_request_t  request;

    static const ngx_str_t  put = ngx_string("put");

    request.n = 0;
    ngx_ratelimit_sync_add_text(&request, &put);
    ngx_ratelimit_sync_add(&request, "%uL", expected);
    ngx_ratelimit_sync_add(&request, expected ? "%016xL" : "0", expected_id);
    ngx_ratelimit_sync_add(&request, "%uL", entry->version);
    ngx_ratelimit_sync_add(&request, "%016xL", entry->id);
    ngx_ratelimit_sync_add_text(&request, &entry->text);
    ngx_ratelimit_sync_add_text(&request, &sync->channel);
    ngx_ratelimit_sync_add(&request, "%uL", entry->version);

    return ngx_ratelimit_sync_send(sync, &request, handler, data);
}


ngx_ratelimit_redis_call_t *
ngx_ratelimit_sync_ask_list(ngx_ratelimit_sync_t *sync,
    ngx_ratelimit_redis_handler_pt handler, void *data)
{
    ngx_ratelimit_sync_request_t  request;

    static const ngx_str_t  list = ngx_string("list");

    request.n = 0;
    ngx_ratelimit_sync_add_text(&request, &list);

    return ngx_ratelimit_sync_send(sync, &request, handler, data);
}


ngx_ratelimit_redis_call_t *
ngx_ratelimit_sync_ask_version(ngx_ratelimit_sync_t *sync, uint64_t version,
    ngx_ratelimit_redis_handler_pt handler, void *data)
{
    ngx_ratelimit_sync_request_t  request;

    static const ngx_str_t  operation = ngx_string("version");

    request.n = 0;
    ngx_ratelimit_sync_add_text(&request, &operation);
    ngx_ratelimit_sync_add(&request, "%uL", version);

    return ngx_ratelimit_sync_send(sync, &request, handler, data);
}


ngx_ratelimit_redis_call_t *
ngx_ratelimit_sync_ask_reset(ngx_ratelimit_sync_t *sync,
    ngx_ratelimit_redis_handler_pt handler, void *data)
{
    ngx_ratelimit_sync_request_t  request;

    static const ngx_str_t  reset = ngx_string("reset");

    request.n = 0;
    ngx_ratelimit_sync_add_text(&request, &reset);
    ngx_ratelimit_sync_add_text(&request, &sync->channel);
    ngx_ratelimit_sync_add_text(&request, &reset);

    return ngx_ratelimit_sync_send(sync, &request, handler, data);
}


ngx_int_t
ngx_ratelimit_sync_number(const ngx_ratelimit_redis_result_t *result,
    ngx_uint_t i, uint64_t *number)
{
    ngx_int_t         n;
    const ngx_str_t  *text;

    if (i >= result->n) {
        return NGX_ERROR;
    }

    text = &result->texts[i];
    n = (text->len > 16) ? NGX_ERROR : ngx_atoi(text->data, text->len);

    if (n == NGX_ERROR || (uint64_t) n > NGX_RATELIMIT_SYNC_LATEST) {
        return NGX_ERROR;
    }

    *number = n;

    return NGX_OK;
}


ngx_int_t
ngx_ratelimit_sync_version(const ngx_ratelimit_redis_result_t *result,
    ngx_uint_t i, uint64_t *version, uint64_t *id)
{
    size_t            k;
    ngx_int_t         digit;
    const ngx_str_t  *text;

    if (i + 1 >= result->n
        || ngx_ratelimit_sync_number(result, i, version) != NGX_OK)
    {
        return NGX_ERROR;
    }

    text = &result->texts[i + 1];

    if (text->len == 0 || text->len > 16) {
        return NGX_ERROR;
    }

    *id = 0;

    for (k = 0; k < text->len; k++) {
        digit = ngx_hextoi(text->data + k, 1);

        if (digit == NGX_ERROR) {
            return NGX_ERROR;
        }

        *id = *id << 4 | (uint64_t) digit;
    }

    return NGX_OK;
}


void
ngx_ratelimit_sync_resets(ngx_ratelimit_sync_t *sync, uint64_t resets)
{
    if (sync->limiter->store->resets == resets) {
        return;
    }

    sync->limiter->store->resets = resets;

    if (sync->limiter->zone.leases) {
        ngx_ratelimit_leases_forget(sync->limiter->zone.leases,
                                    (uint64_t) ngx_current_msec * 1000);
    }
}
