/*
 * JSON that is sent to a client: texts, times, and the whole answer.
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
ngx_http_ratelimit_json_dump(ngx_pool_t *pool, json_t *json, ngx_str_t *text)
{
    size_t   len;
    char    *dump;

    dump = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);

    if (dump == NULL) {
        return NGX_ERROR;
    }

    len = ngx_strlen(dump);
    text->data = ngx_pnalloc(pool, len + 1);

    if (text->data) {
        ngx_memcpy(text->data, dump, len);
        text->data[len] = LF;
        text->len = len + 1;
    }

    free(dump);

    return text->data ? NGX_OK : NGX_ERROR;
}
