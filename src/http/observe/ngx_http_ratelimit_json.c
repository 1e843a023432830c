/*
 * JSON that is sent to a client: texts, times, counters, and the whole answer.
 */

#include "ngx_http_ratelimit_json.h"

#include <jansson.h>


json_t *
ngx_http_ratelimit_json_text(const ngx_str_t *text)
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


u_char *
ngx_http_ratelimit_json_time(u_char *p, uint64_t time_ms)
{
    ngx_tm_t  tm;

    ngx_gmtime((time_t) (time_ms / 1000), &tm);

    return ngx_sprintf(p, "%4d-%02d-%02dT%02d:%02d:%02d.%03uLZ",
                       tm.ngx_tm_year, tm.ngx_tm_mon, tm.ngx_tm_mday,
                       tm.ngx_tm_hour, tm.ngx_tm_min, tm.ngx_tm_sec,
                       time_ms % 1000);
}


ngx_int_t
ngx_http_ratelimit_json_counter(json_t *json,
    const ngx_ratelimit_inspect_t *inspect)
{
    u_char                        buf[NGX_HTTP_RATELIMIT_JSON_TIME];
    uint64_t                      now_ms;
    ngx_int_t                     rc;
    ngx_str_t                     text;
    ngx_time_t                   *now;
    const ngx_ratelimit_limit_t  *limit;

    limit = inspect->limit;

    rc = json_object_set_new(json, "algorithm",
                 json_string(ngx_ratelimit_algorithm_name(limit->algorithm)));
    rc |= json_object_set_new(json, "limit", json_integer(limit->capacity));
    rc |= json_object_set_new(json, "remaining",
                              (inspect->status == NGX_RATELIMIT_REDIS_OK)
                              ? json_integer(inspect->answer.remaining)
                              : json_null());

    if (limit->algorithm != NGX_RATELIMIT_CONCURRENCY) {
        rc |= json_object_set_new(json, "window_seconds",
                                  json_real((double) limit->window_us / 1e6));
    }

    if (inspect->status != NGX_RATELIMIT_REDIS_OK) {
        rc |= json_object_set_new(json, "unknown",
                        ngx_http_ratelimit_json_text(
                            ngx_ratelimit_redis_status_name(inspect->status)));

    } else if (limit->algorithm != NGX_RATELIMIT_CONCURRENCY) {
        now = ngx_timeofday();
        now_ms = (uint64_t) now->sec * 1000 + now->msec;

        text.data = buf;
        text.len = ngx_http_ratelimit_json_time(buf, now_ms
                                        + (inspect->answer.reset_us + 999)
                                          / 1000)
                   - buf;

        rc |= json_object_set_new(json, "reset_at",
                                  ngx_http_ratelimit_json_text(&text));
    }

    return rc ? NGX_ERROR : NGX_OK;
}


/* json_dumps() leaves names out if memory is. */
ngx_int_t
ngx_http_ratelimit_json_dump(ngx_pool_t *pool, json_t *json, ngx_str_t *text)
{
    size_t  len;

    len = json_dumpb(json, NULL, 0, JSON_COMPACT);
    text->len = len + 1;
    text->data = len ? ngx_pnalloc(pool, text->len) : NULL;

    if (text->data == NULL
        || json_dumpb(json, (char *) text->data, len, JSON_COMPACT) != len)
    {
        json_decref(json);
        return NGX_ERROR;
    }

    text->data[len] = LF;
    json_decref(json);

    return NGX_OK;
}
