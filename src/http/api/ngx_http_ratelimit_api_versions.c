/*
 * The versions of a document: what there is of each, each as it was, and the
 * way back to one, which is a change like any other.
 */

#include "ngx_http_ratelimit_api.h"

#include "ngx_ratelimit_text.h"

#include <jansson.h>

static ngx_int_t ngx_http_ratelimit_api_version_read(
    ngx_http_ratelimit_api_t *api, ngx_http_ratelimit_api_pt next);
static void ngx_http_ratelimit_api_version_handler(void *data,
    const ngx_ratelimit_sync_result_t *result);
static void ngx_http_ratelimit_api_versions_handler(void *data,
    const ngx_ratelimit_sync_result_t *result);
static ngx_int_t ngx_http_ratelimit_api_versions_answer(
    ngx_http_ratelimit_api_t *api);
static json_t *ngx_http_ratelimit_api_versions_json(
    const ngx_ratelimit_sync_result_t *result);
static ngx_int_t ngx_http_ratelimit_api_version_answer(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_restore_begin(
    ngx_http_ratelimit_api_t *api);


ngx_int_t
ngx_http_ratelimit_api_versions(ngx_http_ratelimit_api_t *api)
{
    return ngx_http_ratelimit_api_wait(api,
               ngx_ratelimit_sync_versions(api->conf->limiter,
                                      ngx_http_ratelimit_api_versions_handler,
                                           api),
               ngx_http_ratelimit_api_versions_answer);
}


static void
ngx_http_ratelimit_api_versions_handler(void *data,
    const ngx_ratelimit_sync_result_t *result)
{
    ngx_http_ratelimit_api_t *api = data;

    ngx_http_ratelimit_api_result(api, result);

    if (api->status == NGX_RATELIMIT_SYNC_OK
        && ngx_http_ratelimit_json_dump(api->request->pool,
                                 ngx_http_ratelimit_api_versions_json(result),
                                        &api->text)
           != NGX_OK)
    {
        api->status = NGX_RATELIMIT_SYNC_FAILED;
    }

    ngx_http_ratelimit_api_wake(api);
}


static json_t *
ngx_http_ratelimit_api_versions_json(const ngx_ratelimit_sync_result_t *result)
{
    u_char                         buf[NGX_HTTP_RATELIMIT_JSON_TIME];
    json_t                        *list;
    ngx_str_t                      time;
    ngx_uint_t                     i;
    const ngx_ratelimit_record_t  *record;

    list = json_array();

    for (i = 0; i < result->n; i++) {

        record = &result->records[i];
        time.data = buf;
        time.len = ngx_http_ratelimit_json_time(buf, record->time_ms) - buf;

        (void) json_array_append_new(list,
            json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:I}",
                "version", (json_int_t) record->version,
                "time", ngx_http_ratelimit_json_text(&time),
                "author", ngx_http_ratelimit_json_text(&record->author),
                "address", ngx_http_ratelimit_json_text(&record->address),
                "method", ngx_http_ratelimit_json_text(&record->method),
                "path", ngx_http_ratelimit_json_text(&record->path),
                "reason", ngx_http_ratelimit_json_text(&record->reason),
                "bytes", (json_int_t) record->document.len));
    }

    return json_pack("{s:I, s:o}", "version", (json_int_t) result->version,
                     "versions", list);
}


static ngx_int_t
ngx_http_ratelimit_api_versions_answer(ngx_http_ratelimit_api_t *api)
{
    if (api->status != NGX_RATELIMIT_SYNC_OK) {
        return ngx_http_ratelimit_api_failed(api);
    }

    ngx_http_ratelimit_api_etag(api, api->version, api->id);

    return ngx_http_ratelimit_api_answer(api, NGX_HTTP_OK, &api->text);
}


ngx_int_t
ngx_http_ratelimit_api_version(ngx_http_ratelimit_api_t *api)
{
    return ngx_http_ratelimit_api_version_read(api,
                                       ngx_http_ratelimit_api_version_answer);
}


ngx_int_t
ngx_http_ratelimit_api_restore(ngx_http_ratelimit_api_t *api)
{
    ngx_int_t  rc;

    rc = ngx_http_ratelimit_api_conditions(api);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    return ngx_http_ratelimit_api_version_read(api,
                                        ngx_http_ratelimit_api_restore_begin);
}


static ngx_int_t
ngx_http_ratelimit_api_version_read(ngx_http_ratelimit_api_t *api,
    ngx_http_ratelimit_api_pt next)
{
    uint64_t  version;

    /* "01" is no other name of version 1 */

    if (api->name.data[0] == '0'
        || ngx_ratelimit_number_parse(api->name.data, api->name.len, 1,
                                      (uint64_t) 1 << 53, &version)
           != 0)
    {
        api->status = NGX_RATELIMIT_SYNC_NOT_FOUND;
        return ngx_http_ratelimit_api_failed(api);
    }

    ngx_str_null(&api->name);

    if (next == ngx_http_ratelimit_api_version_answer
        && ngx_http_ratelimit_api_work(api) == NULL)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_ratelimit_api_wait(api,
               ngx_ratelimit_sync_read(api->conf->limiter, version,
                                       ngx_http_ratelimit_api_version_handler,
                                       api),
               next);
}


static void
ngx_http_ratelimit_api_version_handler(void *data,
    const ngx_ratelimit_sync_result_t *result)
{
    ngx_http_ratelimit_api_t *api = data;

    ngx_str_t  *document;

    ngx_http_ratelimit_api_result(api, result);

    if (api->status == NGX_RATELIMIT_SYNC_OK) {

        if (api->work) {
            if (ngx_http_ratelimit_api_work_base(api->work, result->records)
                != NGX_OK)
            {
                api->status = NGX_RATELIMIT_SYNC_FAILED;
            }

        } else {
            document = &result->records->document;

            api->body.len = document->len;
            api->body.data = ngx_pstrdup(api->request->pool, document);

            if (api->body.data == NULL) {
                api->status = NGX_RATELIMIT_SYNC_FAILED;
            }
        }
    }

    ngx_http_ratelimit_api_wake(api);
}


/* The answer of "GET /rules" at that time. */
static ngx_int_t
ngx_http_ratelimit_api_version_answer(ngx_http_ratelimit_api_t *api)
{
    if (api->status != NGX_RATELIMIT_SYNC_OK) {
        return ngx_http_ratelimit_api_failed(api);
    }

    api->work->edit.resource = NGX_RATELIMIT_EDIT_DOCUMENT;
    api->work->edit.method = NGX_RATELIMIT_EDIT_GET;

    return ngx_http_ratelimit_api_edit_begin(api);
}


/* From here on it is a "PUT /rules" with that document. */
static ngx_int_t
ngx_http_ratelimit_api_restore_begin(ngx_http_ratelimit_api_t *api)
{
    if (api->status != NGX_RATELIMIT_SYNC_OK) {
        return ngx_http_ratelimit_api_failed(api);
    }

    if (ngx_http_ratelimit_api_work(api) == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_ratelimit_api_edit_current(api);
}
