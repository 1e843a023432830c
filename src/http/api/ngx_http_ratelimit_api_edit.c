/*
 * Reads and changes of the document. A job edits the current document. The
 * event loop compiles the regular expressions of the next one, a few at a time.
 * Then the next document is put, if the current one is still current.
 */

#include "ngx_http_ratelimit_api.h"

#include <jansson.h>
#include <openssl/rand.h>

#define NGX_HTTP_RATELIMIT_API_SLICE_MS  5
#define NGX_HTTP_RATELIMIT_API_TRIES     5   /* of If-Match: "*" */

static ngx_int_t ngx_http_ratelimit_api_edit_newer(
    ngx_http_ratelimit_api_t *api, uint64_t version);
static void ngx_http_ratelimit_api_edit_newer_handler(void *data,
    const ngx_ratelimit_sync_result_t *result);
static ngx_int_t ngx_http_ratelimit_api_edit_got_newer(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_edit_start(
    ngx_http_ratelimit_api_t *api);
static void ngx_http_ratelimit_api_edit_work(void *data);
static void ngx_http_ratelimit_api_edit_done(void *data,
    ngx_uint_t cancelled);
static ngx_int_t ngx_http_ratelimit_api_edit_finish(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_edit_outcome(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_edit_valid(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_edit_check(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_edit_exists(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_edit_put(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_edit_answer(
    ngx_http_ratelimit_api_t *api);
static void ngx_http_ratelimit_api_edit_location(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_edit_changed(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_work_texts(
    ngx_ratelimit_edit_t *edit, ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_work_copy(ngx_pool_t *pool,
    ngx_str_t *to, const ngx_str_t *from);
static void ngx_http_ratelimit_api_edit_forget(void *data);
static void ngx_http_ratelimit_api_work_free(void *data);
static void ngx_http_ratelimit_api_work_destroy(
    ngx_http_ratelimit_api_work_t *work);
static ngx_ratelimit_edit_method_e ngx_http_ratelimit_api_edit_method(
    const ngx_http_ratelimit_api_t *api);


ngx_int_t
ngx_http_ratelimit_api_edit(ngx_http_ratelimit_api_t *api)
{
    ngx_int_t  rc;

    rc = ngx_http_ratelimit_api_conditions(api);
    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (ngx_http_ratelimit_api_work(api) == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_ratelimit_api_edit_current(api);
}


/* Takes the version now. The job reads the document, and compares it. */
ngx_int_t
ngx_http_ratelimit_api_edit_current(ngx_http_ratelimit_api_t *api)
{
    ngx_ratelimit_sync_stat_t  stat;

    ngx_ratelimit_sync_stat(api->conf->limiter, &stat);
    api->work->edit.version = stat.version;
    api->work->id = stat.id;

    return ngx_http_ratelimit_api_edit_begin(api);
}


ngx_int_t
ngx_http_ratelimit_api_edit_begin(ngx_http_ratelimit_api_t *api)
{
    uint64_t               most;
    ngx_table_elt_t       *h;
    ngx_http_request_t    *r;
    ngx_ratelimit_edit_t  *edit;

    r = api->request;
    edit = &api->work->edit;
    most = 0;

    if (!ngx_http_ratelimit_api_writes(api)) {

        h = r->headers_in.if_none_match;

        if (edit->method != NGX_RATELIMIT_EDIT_GET || h == NULL
            || !ngx_http_ratelimit_api_tags_have(&h->value, api->work, &most))
        {
            return ngx_http_ratelimit_api_edit_start(api);
        }

        ngx_http_ratelimit_api_etag(api, edit->version, api->work->id);

        return ngx_http_ratelimit_api_answer(api, NGX_HTTP_NOT_MODIFIED, NULL);
    }

    if (api->any
        || ngx_http_ratelimit_api_tags_have(&r->headers_in.if_match->value,
                                        api->work, &most))
    {
        return ngx_http_ratelimit_api_edit_start(api);
    }

    /* another gateway has answered this client with a newer version */

    if (most > edit->version && api->tries++ == 0) {
        return ngx_http_ratelimit_api_edit_newer(api, most);
    }

    api->version = ngx_max(api->version, edit->version);
    api->status = NGX_RATELIMIT_SYNC_CONFLICT;

    return ngx_http_ratelimit_api_failed(api);
}


static ngx_int_t
ngx_http_ratelimit_api_edit_newer(ngx_http_ratelimit_api_t *api,
    uint64_t version)
{
    return ngx_http_ratelimit_api_wait(api,
               ngx_ratelimit_sync_read(api->conf->limiter, version,
                                    ngx_http_ratelimit_api_edit_newer_handler,
                                       api),
               ngx_http_ratelimit_api_edit_got_newer);
}


static void
ngx_http_ratelimit_api_edit_newer_handler(void *data,
    const ngx_ratelimit_sync_result_t *result)
{
    ngx_http_ratelimit_api_t *api = data;

    const ngx_ratelimit_edit_t  *edit;

    ngx_http_ratelimit_api_result(api, result);

    edit = &api->work->edit;

    /* a document that cannot be read can be replaced */

    if (result->status == NGX_RATELIMIT_SYNC_TOO_LARGE
        && edit->resource == NGX_RATELIMIT_EDIT_DOCUMENT
        && edit->method == NGX_RATELIMIT_EDIT_PUT)
    {
        api->status = NGX_RATELIMIT_SYNC_OK;
    }

    if (api->status == NGX_RATELIMIT_SYNC_OK && result->n
        && ngx_http_ratelimit_api_work_base(api->work, result->records)
           != NGX_OK)
    {
        api->status = NGX_RATELIMIT_SYNC_FAILED;
    }

    ngx_http_ratelimit_api_wake(api);
}


static ngx_int_t
ngx_http_ratelimit_api_edit_got_newer(ngx_http_ratelimit_api_t *api)
{
    return (api->status == NGX_RATELIMIT_SYNC_OK
            || api->status == NGX_RATELIMIT_SYNC_NOT_FOUND)
           ? ngx_http_ratelimit_api_edit_begin(api)
           : ngx_http_ratelimit_api_failed(api);
}


static ngx_int_t
ngx_http_ratelimit_api_edit_start(ngx_http_ratelimit_api_t *api)
{
    ngx_http_ratelimit_api_work_t  *work;

    work = api->work;
    work->edit.now = ngx_time();

    api->next = ngx_http_ratelimit_api_edit_finish;

    work->job = ngx_ratelimit_job_start(ngx_http_ratelimit_api_edit_work,
                                        ngx_http_ratelimit_api_edit_done,
                                        work, ngx_cycle->log);

    return work->job ? NGX_BUSY : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


static void
ngx_http_ratelimit_api_edit_work(void *data)
{
    ngx_http_ratelimit_api_work_t *work = data;

    ngx_int_t               rc;
    ngx_ratelimit_edit_t   *edit;
    ngx_ratelimit_record_t  record;

    edit = &work->edit;

    if (!work->based) {
        rc = ngx_ratelimit_sync_current(edit->limiter, edit->pool, &record);

        if (rc == NGX_ERROR) {
            edit->status = NGX_RATELIMIT_EDIT_ERROR;
            return;
        }

        work->moved = (record.version != edit->version
                       || record.id != work->id);
        work->based = 1;
        work->id = record.id;
        work->lineage = record.lineage;
        edit->base = record.document;
        edit->version = record.version;

        if (work->moved) {
            return;
        }
    }

    ngx_ratelimit_edit(edit);
}


static void
ngx_http_ratelimit_api_edit_done(void *data, ngx_uint_t cancelled)
{
    ngx_http_ratelimit_api_work_t *work = data;

    work->job = NULL;

    if (cancelled) {
        ngx_http_ratelimit_api_work_destroy(work);
        return;
    }

    ngx_http_ratelimit_api_wake(work->api);
}


/* Compiles regular expressions, which a thread must not: a slice a time. */
static ngx_int_t
ngx_http_ratelimit_api_edit_finish(ngx_http_ratelimit_api_t *api)
{
    ngx_int_t              rc;
    ngx_ratelimit_edit_t  *edit;

    edit = &api->work->edit;

    if (api->work->moved) {
        api->work->moved = 0;
        return ngx_http_ratelimit_api_edit_begin(api);
    }

    if (edit->policy) {
        rc = ngx_ratelimit_policy_finish(edit->policy,
                                         NGX_HTTP_RATELIMIT_API_SLICE_MS,
                                         &edit->problems);
        if (rc == NGX_AGAIN) {
            ngx_http_ratelimit_api_later(api);
            return NGX_BUSY;
        }

        if (rc == NGX_ERROR) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        if (ngx_ratelimit_edit_invalid(edit)) {
            edit->status = NGX_RATELIMIT_EDIT_INVALID;
        }

        ngx_ratelimit_policy_release(edit->policy);
        edit->policy = NULL;
    }

    return ngx_http_ratelimit_api_edit_outcome(api);
}


static ngx_int_t
ngx_http_ratelimit_api_edit_outcome(ngx_http_ratelimit_api_t *api)
{
    ngx_ratelimit_edit_t  *edit;

    edit = &api->work->edit;

    switch (edit->status) {

    case NGX_RATELIMIT_EDIT_OK:
    case NGX_RATELIMIT_EDIT_CREATED:
    case NGX_RATELIMIT_EDIT_GONE:

        if (api->create && edit->status != NGX_RATELIMIT_EDIT_CREATED) {
            return ngx_http_ratelimit_api_edit_exists(api);
        }

        if (edit->resource == NGX_RATELIMIT_EDIT_VALIDATE) {
            return ngx_http_ratelimit_api_edit_valid(api);
        }

        if (!ngx_http_ratelimit_api_writes(api)) {
            return ngx_http_ratelimit_api_edit_answer(api);
        }

        return edit->document.len ? ngx_http_ratelimit_api_edit_put(api)
                                  : ngx_http_ratelimit_api_edit_check(api);

    case NGX_RATELIMIT_EDIT_NOT_FOUND:

        ngx_http_ratelimit_api_etag(api, edit->version, api->work->id);

        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_NOT_FOUND,
                                              "not-found", "version %uL of "
                                              "the document has no such one",
                                              edit->version);

    case NGX_RATELIMIT_EDIT_INVALID:
        return ngx_http_ratelimit_api_problems(api, 422, "invalid",
                                               &edit->problems,
                                               "the document is not valid; "
                                               "nothing is changed");

    case NGX_RATELIMIT_EDIT_DENY_ALL:
        return ngx_http_ratelimit_api_problems(api, 422, "deny-all",
                                               &edit->problems,
                                               "the document would reject all "
                                               "requests; \"?force=1\" makes "
                                               "it so");

    case NGX_RATELIMIT_EDIT_TOO_LARGE:
        api->status = NGX_RATELIMIT_SYNC_TOO_LARGE;
        return ngx_http_ratelimit_api_failed(api);

    default:
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
}


static ngx_int_t
ngx_http_ratelimit_api_edit_valid(ngx_http_ratelimit_api_t *api)
{
    ngx_ratelimit_edit_t  *edit;

    edit = &api->work->edit;

    ngx_http_ratelimit_api_etag(api, edit->version, api->work->id);

    return ngx_http_ratelimit_api_json(api, NGX_HTTP_OK,
               json_pack("{s:b, s:o}", "valid", 1, "warnings",
                         ngx_http_ratelimit_api_problem_list(&edit->warnings)));
}


/* The document stays as it is here. Does the fleet have the same? */
static ngx_int_t
ngx_http_ratelimit_api_edit_check(ngx_http_ratelimit_api_t *api)
{
    return ngx_http_ratelimit_api_wait(api,
               ngx_ratelimit_sync_check(api->conf->limiter,
                                        api->work->edit.version, api->work->id,
                                        ngx_http_ratelimit_api_called, api),
               ngx_http_ratelimit_api_edit_changed);
}


static ngx_int_t
ngx_http_ratelimit_api_edit_exists(ngx_http_ratelimit_api_t *api)
{
    api->version = api->work->edit.version;

    ngx_http_ratelimit_api_etag(api, api->version, api->work->id);

    return ngx_http_ratelimit_api_problem(api, NGX_HTTP_PRECONDITION_FAILED,
                                          "exists", "it is there, and "
                                          "\"If-None-Match: *\" only creates; "
                                          "nothing is changed");
}


static ngx_int_t
ngx_http_ratelimit_api_edit_put(ngx_http_ratelimit_api_t *api)
{
    ngx_time_t              *now;
    ngx_ratelimit_edit_t    *edit;
    ngx_ratelimit_record_t   record;

    edit = &api->work->edit;
    now = ngx_timeofday();

    ngx_memzero(&record, sizeof(ngx_ratelimit_record_t));

    record.lineage = api->work->lineage;
    record.time_ms = (uint64_t) now->sec * 1000 + now->msec;
    record.document = edit->document;

    if (ngx_http_ratelimit_api_record(api, &record) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    api->writing = 1;

    return ngx_http_ratelimit_api_wait(api,
               ngx_ratelimit_sync_put(edit->limiter, edit->version,
                                      api->work->id, &record,
                                      ngx_http_ratelimit_api_called, api),
               ngx_http_ratelimit_api_edit_changed);
}


static ngx_int_t
ngx_http_ratelimit_api_edit_changed(ngx_http_ratelimit_api_t *api)
{
    if (api->status == NGX_RATELIMIT_SYNC_OK) {
        return ngx_http_ratelimit_api_edit_answer(api);
    }

    if (api->status != NGX_RATELIMIT_SYNC_CONFLICT || !api->any
        || api->tries++ == NGX_HTTP_RATELIMIT_API_TRIES)
    {
        return ngx_http_ratelimit_api_failed(api);
    }

    /* somebody was faster: the same change, of what is there now */

    if (ngx_http_ratelimit_api_work(api) == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (api->version) {
        return ngx_http_ratelimit_api_edit_newer(api, api->version);
    }

    return ngx_http_ratelimit_api_edit_current(api);
}


/*
 * Shows what is there now; after a DELETE the version. The tag is that of the
 * version. A client may PUT the body again, so a header says that the state
 * file does not have it yet.
 */
static ngx_int_t
ngx_http_ratelimit_api_edit_answer(ngx_http_ratelimit_api_t *api)
{
    u_char                *p;
    uint64_t               version;
    ngx_str_t              body;
    ngx_uint_t             status, changed;
    ngx_ratelimit_edit_t  *edit;

    edit = &api->work->edit;

    changed = (edit->document.len && ngx_http_ratelimit_api_writes(api));
    version = edit->version + changed;
    status = (edit->status == NGX_RATELIMIT_EDIT_CREATED) ? NGX_HTTP_CREATED
                                                          : NGX_HTTP_OK;

    ngx_http_ratelimit_api_etag(api, version,
                                changed ? api->id : api->work->id);

    if (changed && !api->saved) {
        ngx_http_ratelimit_api_header(api, "X-RateLimit-Saved", "false");
    }

    if (status == NGX_HTTP_CREATED) {
        ngx_http_ratelimit_api_edit_location(api);
    }

    if (edit->reply.len) {
        return ngx_http_ratelimit_api_answer(api, status, &edit->reply);
    }

    body.data = ngx_pnalloc(api->request->pool, NGX_INT64_LEN
                            + sizeof("{\"version\":,\"saved\":false}\n"));
    if (body.data == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    p = ngx_sprintf(body.data, "{\"version\":%uL%s}\n", version,
                    (changed && !api->saved) ? ",\"saved\":false" : "");
    body.len = p - body.data;

    return ngx_http_ratelimit_api_answer(api, status, &body);
}


/* The path of the request, and the id of a POSTed element. */
static void
ngx_http_ratelimit_api_edit_location(ngx_http_ratelimit_api_t *api)
{
    u_char     *p, *location;
    size_t      len;
    ngx_str_t  *made, *uri;

    made = &api->work->edit.made;
    uri = &api->request->unparsed_uri;

    p = ngx_strlchr(uri->data, uri->data + uri->len, '?');
    len = p ? (size_t) (p - uri->data) : uri->len;

    location = ngx_pnalloc(api->request->pool,
                           len + sizeof("/") + made->len);
    if (location == NULL) {
        api->failed = 1;
        return;
    }

    p = ngx_cpymem(location, uri->data, len);

    if (made->len) {
        *p++ = '/';
        p = ngx_cpymem(p, made->data, made->len);
    }

    *p = '\0';

    ngx_http_ratelimit_api_header(api, "Location", (char *) location);
}


ngx_http_ratelimit_api_work_t *
ngx_http_ratelimit_api_work(ngx_http_ratelimit_api_t *api)
{
    ngx_pool_t                     *pool;
    ngx_pool_cleanup_t             *cln;
    ngx_ratelimit_edit_t           *edit;
    ngx_http_ratelimit_api_work_t  *work;

    if (api->forget == NULL) {

        /* the answer may be in its pool: it goes with the request */

        cln = ngx_pool_cleanup_add(api->request->pool, 0);
        if (cln == NULL) {
            return NULL;
        }

        cln->handler = ngx_http_ratelimit_api_work_free;
        cln->data = api;

        api->forget = ngx_http_ratelimit_api_edit_forget;
        api->data = api;
    }

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
    ngx_str_t  rule, key, force;

    if (ngx_http_ratelimit_api_argument(api, "rule", &rule) != NGX_OK
        || ngx_http_ratelimit_api_argument(api, "key", &key) != NGX_OK
        || ngx_http_ratelimit_api_argument(api, "force", &force) != NGX_OK)
    {
        return NGX_ERROR;
    }

    edit->force = (force.len == 1 && force.data[0] == '1');

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


static ngx_ratelimit_edit_method_e
ngx_http_ratelimit_api_edit_method(const ngx_http_ratelimit_api_t *api)
{
    ngx_uint_t  method;

    /* the way back to a version is the document of that version, put */

    method = (api->route->flags & NGX_HTTP_RATELIMIT_API_NO_BODY)
             ? NGX_HTTP_PUT : api->request->method;

    return (method == NGX_HTTP_PUT) ? NGX_RATELIMIT_EDIT_PUT
           : (method == NGX_HTTP_POST) ? NGX_RATELIMIT_EDIT_POST
           : (method == NGX_HTTP_PATCH) ? NGX_RATELIMIT_EDIT_PATCH
           : (method == NGX_HTTP_DELETE) ? NGX_RATELIMIT_EDIT_DELETE
           : NGX_RATELIMIT_EDIT_GET;
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


/* The request does not wait for a job any more. */
static void
ngx_http_ratelimit_api_edit_forget(void *data)
{
    ngx_http_ratelimit_api_t *api = data;

    if (api->work && api->work->job) {
        ngx_http_ratelimit_api_work_free(api);
    }
}


/* A job that runs frees its memory when it has ended. */
static void
ngx_http_ratelimit_api_work_free(void *data)
{
    ngx_http_ratelimit_api_t *api = data;

    ngx_http_ratelimit_api_work_t  *work;

    work = api->work;
    api->work = NULL;

    if (work && work->job) {
        ngx_ratelimit_job_cancel(work->job);

    } else if (work) {
        ngx_http_ratelimit_api_work_destroy(work);
    }
}


static void
ngx_http_ratelimit_api_work_destroy(ngx_http_ratelimit_api_work_t *work)
{
    if (work->edit.policy) {
        ngx_ratelimit_policy_release(work->edit.policy);
    }

    ngx_destroy_pool(work->edit.pool);
}
