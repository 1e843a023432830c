/*
 * What reads a part of the document, or changes it: the current one is edited
 * by a job, the regular expressions of the next one are tried here, a bit at a
 * time, and it is put where the current one was: unless that is another one by
 * now.
 */

#include "ngx_http_ratelimit_api.h"

#include <jansson.h>

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
static void ngx_http_ratelimit_api_edit_put_handler(void *data,
    const ngx_ratelimit_sync_result_t *result);
static ngx_int_t ngx_http_ratelimit_api_edit_answer(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_edit_location(
    ngx_http_ratelimit_api_t *api);
static ngx_int_t ngx_http_ratelimit_api_edit_changed(
    ngx_http_ratelimit_api_t *api);
static ngx_uint_t ngx_http_ratelimit_api_names(const ngx_str_t *tags,
    const ngx_http_ratelimit_api_work_t *work, uint64_t *most);
static ngx_table_elt_t *ngx_http_ratelimit_api_if_none_match(
    ngx_http_request_t *r);
static ngx_uint_t ngx_http_ratelimit_api_writes(
    ngx_http_ratelimit_api_t *api);


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


/* What of a change must be right before anything else is done. */
ngx_int_t
ngx_http_ratelimit_api_conditions(ngx_http_ratelimit_api_t *api)
{
    ngx_table_elt_t     *h;
    ngx_http_request_t  *r;

    static ngx_str_t  header = ngx_string("http_x_ratelimit_reason");

    r = api->request;

    if (!ngx_http_ratelimit_api_utf8(&api->name)) {
        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_BAD_REQUEST,
                                              "invalid",
                                              "expected a name in UTF-8");
    }

    if (!ngx_http_ratelimit_api_writes(api)) {
        return NGX_DECLINED;
    }

    h = r->headers_in.if_none_match;
    api->create = (h != NULL);

    if (h && (h->value.len != 1 || h->value.data[0] != '*')) {
        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_BAD_REQUEST,
                   "invalid", "a change takes \"If-None-Match: *\" alone: it "
                   "creates, and changes nothing that is there");
    }

    h = r->headers_in.if_match;

    if (h == NULL && !api->create) {
        return ngx_http_ratelimit_api_problem(api, 428,
                   "precondition-required", "expected \"If-Match\" with the "
                   "\"ETag\" of what is changed, or \"*\"; or "
                   "\"If-None-Match: *\"");
    }

    api->any = (h == NULL || (h->value.len == 1 && h->value.data[0] == '*'));

    if (ngx_http_ratelimit_api_argument(api, "reason", &api->reason) == NULL) {
        ngx_http_variable_value_t  *vv;

        vv = ngx_http_get_variable(r, &header,
                                   ngx_hash_key(header.data, header.len));

        if (vv && vv->valid && !vv->not_found) {
            api->reason.data = vv->data;
            api->reason.len = vv->len;
        }
    }

    if (api->reason.len > NGX_HTTP_RATELIMIT_API_REASON
        || !ngx_http_ratelimit_api_utf8(&api->reason))
    {
        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_BAD_REQUEST,
                   "invalid", "expected a reason of at most %d bytes in "
                   "UTF-8, without control characters",
                   NGX_HTTP_RATELIMIT_API_REASON);
    }

    return NGX_DECLINED;
}


/* Its version now; the job reads it, and finds that it still is. */
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

        h = ngx_http_ratelimit_api_if_none_match(r);

        if (edit->method != NGX_RATELIMIT_EDIT_GET || h == NULL
            || !ngx_http_ratelimit_api_names(&h->value, api->work, &most))
        {
            return ngx_http_ratelimit_api_edit_start(api);
        }

        if (ngx_http_ratelimit_api_etag(api, edit->version, api->work->id)
            != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return ngx_http_ratelimit_api_answer(api, NGX_HTTP_NOT_MODIFIED, NULL);
    }

    if (api->any
        || ngx_http_ratelimit_api_names(&r->headers_in.if_match->value,
                                        api->work, &most))
    {
        return ngx_http_ratelimit_api_edit_start(api);
    }

    /* another node has answered this client with what is not here yet */

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
    api->next = ngx_http_ratelimit_api_edit_got_newer;
    api->call = ngx_ratelimit_sync_read(api->conf->limiter, version,
                                    ngx_http_ratelimit_api_edit_newer_handler,
                                        api);

    return api->call ? NGX_BUSY : NGX_HTTP_INTERNAL_SERVER_ERROR;
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
    switch (api->status) {

    case NGX_RATELIMIT_SYNC_OK:
    case NGX_RATELIMIT_SYNC_NOT_FOUND:
        return ngx_http_ratelimit_api_edit_begin(api);

    default:
        return ngx_http_ratelimit_api_failed(api);
    }
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


/* What a thread must not do: one slice of it, until all is done. */
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

    if (edit->policy
        && (edit->status == NGX_RATELIMIT_EDIT_OK
            || edit->status == NGX_RATELIMIT_EDIT_CREATED
            || edit->status == NGX_RATELIMIT_EDIT_GONE))
    {
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

        if (ngx_http_ratelimit_api_etag(api, edit->version, api->work->id)
            != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

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

    if (ngx_http_ratelimit_api_etag(api, edit->version, api->work->id)
        != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_ratelimit_api_json(api, NGX_HTTP_OK,
               json_pack("{s:b, s:o}", "valid", 1, "warnings",
                         ngx_http_ratelimit_api_problem_list(&edit->warnings)));
}


/*
 * Nothing would be changed, by what this gateway has: so it is if the fleet has
 * the same.
 */
static ngx_int_t
ngx_http_ratelimit_api_edit_check(ngx_http_ratelimit_api_t *api)
{
    api->next = ngx_http_ratelimit_api_edit_changed;
    api->call = ngx_ratelimit_sync_check(api->conf->limiter,
                                         api->work->edit.version,
                                         api->work->id,
                                      ngx_http_ratelimit_api_edit_put_handler,
                                         api);

    return api->call ? NGX_BUSY : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


static ngx_int_t
ngx_http_ratelimit_api_edit_exists(ngx_http_ratelimit_api_t *api)
{
    api->version = api->work->edit.version;

    if (ngx_http_ratelimit_api_etag(api, api->version, api->work->id)
        != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

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
    api->next = ngx_http_ratelimit_api_edit_changed;
    api->call = ngx_ratelimit_sync_put(edit->limiter, edit->version,
                                       api->work->id, &record,
                                      ngx_http_ratelimit_api_edit_put_handler,
                                       api);

    return api->call ? NGX_BUSY : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


static void
ngx_http_ratelimit_api_edit_put_handler(void *data,
    const ngx_ratelimit_sync_result_t *result)
{
    ngx_http_ratelimit_api_t *api = data;

    ngx_http_ratelimit_api_result(api, result);

    api->writing = 0;
    api->saved = result->saved;

    ngx_http_ratelimit_api_wake(api);
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
 * What there is now, with its version as the tag; of what is no more, the
 * version alone. A body that somebody may put again has no member that is not
 * of it, so a header says what is not in the state file yet.
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

    if (ngx_http_ratelimit_api_etag(api, version,
                                    changed ? api->id : api->work->id)
        != NGX_OK
        || (changed && !api->saved
            && ngx_http_ratelimit_api_header(api, "X-RateLimit-Saved",
                                             "false")
               != NGX_OK))
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (status == NGX_HTTP_CREATED
        && ngx_http_ratelimit_api_edit_location(api) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
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


/*
 * Of what is new: the path of the request, and the id of what was POSTed to it,
 * where that is one; nothing of an id has to be escaped.
 */
static ngx_int_t
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
        return NGX_ERROR;
    }

    p = ngx_cpymem(location, uri->data, len);

    if (made->len) {
        *p++ = '/';
        p = ngx_cpymem(p, made->data, made->len);
    }

    *p = '\0';

    return ngx_http_ratelimit_api_header(api, "Location", (char *) location);
}


/*
 * Whether a list of tags has the one of the base; the largest version of them.
 * What nginx has compressed may come back as a weak one; quotes may be
 * forgotten. "*" stands alone.
 */
static ngx_uint_t
ngx_http_ratelimit_api_names(const ngx_str_t *tags,
    const ngx_http_ratelimit_api_work_t *work, uint64_t *most)
{
    u_char      *p, *last, *start, *tag;
    uint64_t     n;
    ngx_uint_t   found;

    u_char  own[NGX_INT64_LEN + sizeof("-") + 16];

    if (tags->len == 1 && tags->data[0] == '*') {
        return 1;
    }

    tag = ngx_http_ratelimit_api_tag(own, work->edit.version, work->id);
    p = tags->data;
    last = p + tags->len;
    found = 0;

    while (p < last) {

        while (p < last && (*p == ' ' || *p == ',' || *p == '\t')) {
            p++;
        }

        if (last - p > 2 && p[0] == 'W' && p[1] == '/') {
            p += 2;
        }

        if (p < last && *p == '"') {
            p++;
        }

        start = p;
        n = 0;

        while (p < last && *p >= '0' && *p <= '9' && p - start < 17) {
            n = n * 10 + (*p++ - '0');
        }

        while (p < last && *p != '"' && *p != ',' && *p != ' ') {
            p++;
        }

        *most = ngx_max(*most, n);
        found |= (p - start == tag - own
                  && ngx_memcmp(start, own, p - start) == 0);

        while (p < last && *p != ',') {
            p++;
        }
    }

    return found;
}


static ngx_table_elt_t *
ngx_http_ratelimit_api_if_none_match(ngx_http_request_t *r)
{
    return r->headers_in.if_none_match;
}


static ngx_uint_t
ngx_http_ratelimit_api_writes(ngx_http_ratelimit_api_t *api)
{
    return !(api->route->flags & NGX_HTTP_RATELIMIT_API_READS)
           && !(api->request->method & (NGX_HTTP_GET|NGX_HTTP_HEAD));
}
