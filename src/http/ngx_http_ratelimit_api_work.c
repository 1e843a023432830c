/*
 * The memory of an edit: its job's and, where it changes something, its put's,
 * both of which may outlive the request; and how much of that a worker has.
 */

#include "ngx_http_ratelimit_api.h"

#include <openssl/rand.h>

/* more than an edit of the largest document and body */
#define NGX_HTTP_RATELIMIT_API_BYTES  (512 * 1024 * 1024)

static ngx_int_t ngx_http_ratelimit_api_work_texts(
    ngx_http_ratelimit_api_work_t *work, ngx_http_ratelimit_api_t *api,
    ngx_http_ratelimit_api_work_t *before);
static ngx_ratelimit_edit_method_e ngx_http_ratelimit_api_edit_method(
    const ngx_http_ratelimit_api_t *api);


ngx_http_ratelimit_api_work_t *
ngx_http_ratelimit_api_work(ngx_http_ratelimit_api_t *api)
{
    ngx_pool_t                     *pool;
    ngx_str_t                       text;
    ngx_ratelimit_edit_t           *edit;
    ngx_http_ratelimit_api_work_t  *work, *before;

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

    before = api->work;
    edit = &work->edit;

    work->api = api;
    work->refs = 1;
    work->load = api->conf->load;

    edit->pool = pool;
    edit->limiter = api->conf->limiter;
    edit->resource = api->route->resource;
    edit->method = ngx_http_ratelimit_api_edit_method(api);
    edit->clear = edit->limiter->clear;

    edit->force = ngx_http_ratelimit_api_argument(api, "force", &text)
                  && text.len == 1 && text.data[0] == '1';

    if (RAND_bytes(edit->random, sizeof(edit->random)) != 1
        || ngx_http_ratelimit_api_work_texts(work, api, before) != NGX_OK)
    {
        ngx_http_ratelimit_api_work_release(work);
        return NULL;
    }

    ngx_http_ratelimit_api_work_free(api);
    api->work = work;

    return work;
}


/* The name and the query are short, the body may not be. */
static ngx_int_t
ngx_http_ratelimit_api_work_texts(ngx_http_ratelimit_api_work_t *work,
    ngx_http_ratelimit_api_t *api, ngx_http_ratelimit_api_work_t *before)
{
    ngx_str_t             *args;
    ngx_ratelimit_edit_t  *edit;

    edit = &work->edit;
    args = &api->request->args;

    if (api->name.len) {
        edit->name.data = ngx_pstrdup(edit->pool, &api->name);
        edit->name.len = api->name.len;
    }

    if (args->len) {
        edit->query.data = ngx_pstrdup(edit->pool, args);
        edit->query.len = args->len;
    }

    if ((api->name.len && edit->name.data == NULL)
        || (args->len && edit->query.data == NULL))
    {
        return NGX_ERROR;
    }

    if (before && before->body) {
        work->body = before->body;
        edit->body = before->edit.body;
        before->body = NULL;
        return NGX_OK;
    }

    if (api->body.len) {
        work->body = ngx_alloc(api->body.len, edit->pool->log);
        if (work->body == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(work->body, api->body.data, api->body.len);
        edit->body.data = work->body;
        edit->body.len = api->body.len;
    }

    return NGX_OK;
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


void
ngx_http_ratelimit_api_work_base(ngx_http_ratelimit_api_work_t *work,
    ngx_ratelimit_record_t *record)
{
    ngx_free(work->base);

    work->base = record->text.data;
    work->based = 1;
    work->edit.base = record->document;
    work->edit.version = record->version;

    record->text.data = NULL;
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
    work->api = NULL;

    if (work->job) {
        ngx_ratelimit_job_cancel(work->job);
        return;
    }

    ngx_http_ratelimit_api_work_release(work);
}


void
ngx_http_ratelimit_api_work_release(void *data)
{
    ngx_http_ratelimit_api_work_t *work = data;

    if (--work->refs) {
        return;
    }

    ngx_http_ratelimit_api_work_weigh(work, 0);

    if (work->edit.policy) {
        ngx_ratelimit_policy_release(work->edit.policy);
    }

    ngx_free(work->base);
    ngx_free(work->body);
    ngx_destroy_pool(work->edit.pool);
}


ngx_int_t
ngx_http_ratelimit_api_work_admit(ngx_http_ratelimit_api_t *api, size_t bytes)
{
    size_t                          others;
    ngx_http_ratelimit_api_work_t  *work;

    work = api->work;
    others = work->load->bytes - work->bytes;

    if (others + bytes <= NGX_HTTP_RATELIMIT_API_BYTES) {
        ngx_http_ratelimit_api_work_weigh(work, bytes);
        return NGX_DECLINED;
    }

    if (ngx_http_ratelimit_api_header(api, "Retry-After",
                                      NGX_HTTP_RATELIMIT_API_RETRY)
        != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_ratelimit_api_problem(api, NGX_HTTP_SERVICE_UNAVAILABLE,
                                          "busy", "other requests of this "
                                          "worker have all memory that there "
                                          "is for documents; nothing is "
                                          "changed");
}


void
ngx_http_ratelimit_api_work_weigh(ngx_http_ratelimit_api_work_t *work,
    size_t bytes)
{
    work->load->bytes += bytes - work->bytes;
    work->bytes = bytes;
}
