/*
 * The memory of an edit's job, which may outlive the request.
 */

#include "ngx_http_ratelimit_api.h"

#include <openssl/rand.h>

static ngx_int_t ngx_http_ratelimit_api_work_texts(
    ngx_ratelimit_edit_t *edit, ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_work_copy(ngx_pool_t *pool,
    ngx_str_t *to, const ngx_str_t *from);
static ngx_ratelimit_edit_method_e ngx_http_ratelimit_api_edit_method(
    const ngx_http_ratelimit_api_t *api);


ngx_http_ratelimit_api_work_t *
ngx_http_ratelimit_api_work(ngx_http_ratelimit_api_t *api)
{
    ngx_pool_t                     *pool;
    ngx_str_t                       text;
    ngx_ratelimit_edit_t           *edit;
    ngx_http_ratelimit_api_work_t  *work;

    /* the log of the connection ends with it */

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, ngx_cycle->log);
    if (pool == NULL) {
        return NULL;
    }

    work = ngx_pcalloc(pool, sizeof(ngx_http_ratelimit_api_work_t));

    if (work == NULL) {
        ngx_destroy_pool(pool);
        return NULL;
    }

    edit = &work->edit;
    work->api = api;

    edit->pool = pool;
    edit->limiter = api->conf->limiter;
    edit->resource = api->route->resource;
    edit->method = ngx_http_ratelimit_api_edit_method(api);
    edit->clear = edit->limiter->clear;

    edit->force = ngx_http_ratelimit_api_argument(api, "force", &text)
                  && text.len == 1 && text.data[0] == '1';

    if (RAND_bytes(edit->random, sizeof(edit->random)) != 1
        || ngx_http_ratelimit_api_work_texts(edit, api) != NGX_OK)
    {
        ngx_destroy_pool(pool);
        return NULL;
    }

    ngx_http_ratelimit_api_work_free(api);
    api->work = work;

    return work;
}


static ngx_int_t
ngx_http_ratelimit_api_work_texts(ngx_ratelimit_edit_t *edit,
    ngx_http_ratelimit_api_t *api)
{
    ngx_str_t  rule, key;

    ngx_str_null(&rule);
    ngx_str_null(&key);
    (void) ngx_http_ratelimit_api_argument(api, "rule", &rule);
    (void) ngx_http_ratelimit_api_argument(api, "key", &key);

    if (ngx_http_ratelimit_api_work_copy(edit->pool, &edit->name, &api->name)
        != NGX_OK
        || ngx_http_ratelimit_api_work_copy(edit->pool, &edit->rule, &rule)
           != NGX_OK
        || ngx_http_ratelimit_api_work_copy(edit->pool, &edit->key, &key)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_ratelimit_api_work_copy(edit->pool, &edit->body,
                                            &api->body);
}


static ngx_int_t
ngx_http_ratelimit_api_work_copy(ngx_pool_t *pool, ngx_str_t *to,
    const ngx_str_t *from)
{
    if (from->len == 0) {
        ngx_str_null(to);
        return NGX_OK;
    }

    to->len = from->len;
    to->data = ngx_pstrdup(pool, (ngx_str_t *) from);

    return to->data ? NGX_OK : NGX_ERROR;
}


/* The way back to a version is the document of that version, put. */
static ngx_ratelimit_edit_method_e
ngx_http_ratelimit_api_edit_method(const ngx_http_ratelimit_api_t *api)
{
    if (api->route->handler == ngx_http_ratelimit_api_restore) {
        return NGX_RATELIMIT_EDIT_PUT;
    }

    switch (api->request->method) {

    case NGX_HTTP_PUT:
        return NGX_RATELIMIT_EDIT_PUT;

    case NGX_HTTP_POST:
        return NGX_RATELIMIT_EDIT_POST;

    case NGX_HTTP_PATCH:
        return NGX_RATELIMIT_EDIT_PATCH;

    case NGX_HTTP_DELETE:
        return NGX_RATELIMIT_EDIT_DELETE;

    default:
        return NGX_RATELIMIT_EDIT_GET;
    }
}


ngx_int_t
ngx_http_ratelimit_api_work_base(ngx_http_ratelimit_api_work_t *work,
    const ngx_ratelimit_record_t *record)
{
    if (ngx_http_ratelimit_api_work_copy(work->edit.pool, &work->edit.base,
                                         &record->document)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    work->based = 1;
    work->edit.version = record->version;
    work->id = record->id;
    work->lineage = record->lineage;

    return NGX_OK;
}


void
ngx_http_ratelimit_api_work_free(ngx_http_ratelimit_api_t *api)
{
    ngx_http_ratelimit_api_work_t  *work;

    work = api->work;

    if (work == NULL) {
        return;
    }

    api->work = NULL;

    if (work->job) {
        ngx_ratelimit_job_cancel(work->job);
        return;
    }

    ngx_http_ratelimit_api_work_destroy(work);
}


void
ngx_http_ratelimit_api_work_destroy(ngx_http_ratelimit_api_work_t *work)
{
    if (work->edit.policy) {
        ngx_ratelimit_policy_release(work->edit.policy);
    }

    ngx_destroy_pool(work->edit.pool);
}
