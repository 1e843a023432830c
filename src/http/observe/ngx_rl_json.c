/* Responses to an operator; texts, times and counters as JSON. */

#include "ngx_rl_json.h"

#include "ngx_rl_text.h"

#include <jansson.h>

/* with 15 digits, 0.1 is "0.1" */
#define NGX_RL_JSON_FLAGS  (JSON_COMPACT|JSON_REAL_PRECISION(15))


u_char *
ngx_rl_grow(ngx_pool_t *pool, ngx_rl_growing_t *growing, size_t size)
{
    u_char  *data;

    size += growing->text.len;

    if (size > growing->room) {

        size = ngx_max(size, 2 * growing->room);

        data = ngx_pnalloc(pool, size);
        if (data == NULL) {
            return NULL;
        }

        if (growing->room) {
            ngx_memcpy(data, growing->text.data, growing->text.len);
            (void) ngx_pfree(pool, growing->text.data);
        }

        growing->text.data = data;
        growing->room = size;
    }

    return growing->text.data + growing->text.len;
}


ngx_int_t
ngx_rl_header(ngx_http_request_t *r, const char *name, const char *value)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    h->hash = 1;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    h->key = ngx_rl_str((u_char *) name, ngx_strlen(name));
    h->value = ngx_rl_str((u_char *) value, ngx_strlen(value));

    return NGX_OK;
}


ngx_int_t
ngx_rl_send(ngx_http_request_t *r, ngx_uint_t status, const ngx_str_t *type,
    const ngx_str_t *body)
{
    u_char      *p;
    ngx_int_t    rc;
    ngx_buf_t   *b;
    ngx_chain_t  out;

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    r->headers_out.status = status;
    r->headers_out.content_length_n = body ? (off_t) body->len : 0;

    if (body) {

        /* a length without parameters: nginx adds no other charset then */

        p = ngx_strlchr(type->data, type->data + type->len, ';');

        r->headers_out.content_type = *type;
        r->headers_out.content_type_len = p ? (size_t) (p - type->data)
                                            : type->len;
        r->headers_out.content_type_lowcase = NULL;
    }

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_ERROR;
    }

    if (body && body->len) {
        b->pos = body->data;
        b->last = body->data + body->len;
        b->memory = 1;
    }

    b->last_buf = (r == r->main);
    b->last_in_chain = 1;

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}


json_t *
ngx_rl_json_text(const ngx_str_t *text)
{
    size_t   i;
    char    *copy;
    json_t  *json;

    json = json_stringn(text->len ? (char *) text->data : "", text->len);

    if (json) {
        return json;
    }

    copy = malloc(text->len + 1);
    if (copy == NULL) {
        return NULL;
    }

    for (i = 0; i < text->len; i++) {
        copy[i] = (text->data[i] < 0x80) ? (char) text->data[i] : '?';
    }

    json = json_stringn(copy, text->len);
    free(copy);

    return json;
}


json_t *
ngx_rl_json_name(const ngx_str_t *text)
{
    return (text && text->len) ? ngx_rl_json_text(text) : json_null();
}


json_t *
ngx_rl_json_time(uint64_t time_ms)
{
    ngx_tm_t  tm;

    ngx_gmtime((time_t) (time_ms / 1000), &tm);

    return json_sprintf("%04d-%02d-%02dT%02d:%02d:%02d.%03dZ",
        (int) tm.ngx_tm_year, (int) tm.ngx_tm_mon, (int) tm.ngx_tm_mday,
        (int) tm.ngx_tm_hour, (int) tm.ngx_tm_min, (int) tm.ngx_tm_sec,
        (int) (time_ms % 1000));
}


json_t *
ngx_rl_json_later(uint64_t ms)
{
    return ngx_rl_json_time(ngx_rl_wall_ms() + ms);
}


void
ngx_rl_json_append(json_t **list, json_t *json)
{
    if (json_array_append_new(*list, json) != 0) {
        json_decref(*list);
        *list = NULL;
    }
}


void
ngx_rl_json_set(json_t **json, const char *name, json_t *value)
{
    if (json_object_set_new(*json, name, value) != 0) {
        json_decref(*json);
        *json = NULL;
    }
}


void
ngx_rl_json_merge(json_t **json, json_t *members)
{
    if (json_object_update(*json, members) != 0) {
        json_decref(*json);
        *json = NULL;
    }

    json_decref(members);
}


json_t *
ngx_rl_json_limit(const ngx_rl_limit_t *limit, json_t *remaining)
{
    json_t  *json;

    if (limit->unlimited) {
        return json_pack("{s:n, s:b}", "limit", "unlimited", 1);
    }

    json = json_pack("{s:s, s:I}",
                     "algorithm", ngx_rl_algorithm_names[limit->algorithm],
                     "limit", (json_int_t) limit->capacity);

    if (remaining) {
        ngx_rl_json_set(&json, "remaining", remaining);
    }

    if (limit->algorithm != NGX_RL_CONCURRENCY) {
        ngx_rl_json_set(&json, "window_seconds",
                        json_integer(ngx_rl_limit_seconds(limit)));
    }

    return json;
}


json_t *
ngx_rl_json_counter(const ngx_rl_look_t *look)
{
    json_t                *json, *remaining;
    ngx_tm_t               tm;
    ngx_uint_t             known;
    const ngx_rl_limit_t  *limit;

    limit = look->limit;
    known = (look->status == NGX_RL_REDIS_OK);

    remaining = known ? json_integer(look->answer.remaining) : json_null();

    json = remaining ? ngx_rl_json_limit(limit, remaining) : NULL;

    if (!known) {
        ngx_rl_json_set(&json, "unknown",
            ngx_rl_json_text(ngx_rl_redis_status_name(look->status)));

    } else if (limit->algorithm != NGX_RL_CONCURRENCY) {
        ngx_gmtime((time_t) ngx_rl_limit_reset(limit, ngx_rl_wall_ms(),
                                               look->answer.reset_us),
                   &tm);

        /* a whole second, as in the body of a rejection */

        ngx_rl_json_set(&json, "reset_at",
            json_sprintf("%04d-%02d-%02dT%02d:%02d:%02dZ",
                         (int) tm.ngx_tm_year, (int) tm.ngx_tm_mon,
                         (int) tm.ngx_tm_mday, (int) tm.ngx_tm_hour,
                         (int) tm.ngx_tm_min, (int) tm.ngx_tm_sec));
    }

    if (look->wait_us) {
        ngx_rl_json_set(&json, "wait_seconds",
                        json_integer(ngx_rl_seconds_up(look->wait_us)));
    }

    return json;
}


/* json_dumps() leaves names out if memory is. */
ngx_int_t
ngx_rl_json_dump(ngx_pool_t *pool, json_t *json, ngx_str_t *text)
{
    size_t  len;

    len = json_dumpb(json, NULL, 0, NGX_RL_JSON_FLAGS);
    text->len = len + 1;
    text->data = len ? ngx_pnalloc(pool, text->len) : NULL;

    if (text->data == NULL
        || json_dumpb(json, (char *) text->data, len, NGX_RL_JSON_FLAGS) != len)
    {
        json_decref(json);
        return NGX_ERROR;
    }

    text->data[len] = LF;
    json_decref(json);

    return NGX_OK;
}
