/*
 * Reads and changes of the document. A job edits the current document, if it
 * has the tags that the client asks for. The event loop compiles the regular
 * expressions of the next one, a few at a time. Then the next document is put,
 * if the current one is still current. The versions that were: their list, each
 * as it was, and the way back to one, which is a change like any other.
 *
 * A change has conditions, and texts that the history has of it: author,
 * address, method, path and reason. No API key is among them.
 */

#include "ngx_rl_api.h"

#include "ngx_rl_document.h"
#include "ngx_rl_text.h"

#include <jansson.h>
#include <openssl/rand.h>

#define NGX_RL_API_SLICE_MS  1
#define NGX_RL_API_TRIES     5   /* of If-Match: "*" */
#define NGX_RL_API_WARNINGS  8   /* of an answer */
#define NGX_RL_API_WARNING   512 /* bytes of one, at most */

static ngx_int_t ngx_rl_api_edit_start(ngx_rl_api_t *api, ngx_uint_t based);


ngx_uint_t
ngx_rl_api_writes(ngx_rl_api_t *api)
{
    return !(api->route->flags & NGX_RL_API_READS)
           && !(api->request->method & (NGX_HTTP_GET|NGX_HTTP_HEAD));
}


/* Whether it is UTF-8 without control characters. */
static ngx_uint_t
ngx_rl_api_utf8(const ngx_str_t *text)
{
    u_char   *p, *last;
    uint32_t  n;

    p = text->len ? text->data : (u_char *) "";
    last = p + text->len;

    while (p < last) {

        n = (*p < 0x80) ? *p++ : ngx_utf8_decode(&p, last - p);

        if (n > 0x10ffff || n < 0x20 || n == 0x7f
            || (n >= 0xd800 && n <= 0xdfff))
        {
            return 0;
        }
    }

    return 1;
}


ngx_int_t
ngx_rl_api_reason(ngx_rl_api_t *api)
{
    ngx_table_elt_t  *h;

    static const ngx_str_t  header = ngx_string("X-RateLimit-Reason");

    api->reason = api->args.reason;

    h = ngx_rl_find_header(&api->request->headers_in.headers, &header);

    if (api->reason.data == NULL && h) {
        api->reason = h->value;
    }

    if (api->reason.len > NGX_RL_API_REASON || !ngx_rl_api_utf8(&api->reason)) {
        return ngx_rl_api_problem(api, NGX_HTTP_BAD_REQUEST, "invalid",
            "expected a reason of at most %d bytes in UTF-8, without control "
            "characters", NGX_RL_API_REASON);
    }

    return NGX_DECLINED;
}


/* NGX_DECLINED, or it is answered: a change needs a condition. */
static ngx_int_t
ngx_rl_api_conditions(ngx_rl_api_t *api)
{
    ngx_table_elt_t     *h;
    ngx_http_request_t  *r;

    r = api->request;

    if (!ngx_rl_api_utf8(&api->name) || !ngx_rl_api_utf8(&api->args.rule)
        || !ngx_rl_api_utf8(&api->args.owner)
        || (api->args.owner.data && api->args.owner.len == 0))
    {
        return ngx_rl_api_problem(api, NGX_HTTP_BAD_REQUEST, "invalid",
                                  "expected a name in UTF-8");
    }

    /* "dry_run=yes" must not change anything */

    if (api->args.dry_run.data
        && (api->args.dry_run.len != 1 || api->args.dry_run.data[0] != '1'))
    {
        return ngx_rl_api_problem(api, NGX_HTTP_BAD_REQUEST, "invalid",
                                  "expected \"dry_run=1\"");
    }

    if (!ngx_rl_api_writes(api)) {
        return NGX_DECLINED;
    }

    h = r->headers_in.if_none_match;
    api->create = (h != NULL);

    if (h && (h->value.len != 1 || h->value.data[0] != '*')) {
        return ngx_rl_api_problem(api, NGX_HTTP_BAD_REQUEST,
                   "invalid", "a change takes \"If-None-Match: *\" alone: it "
                   "creates, and changes nothing that is there");
    }

    h = r->headers_in.if_match;

    if (h == NULL && !api->create) {
        return ngx_rl_api_problem(api, 428,
                   "precondition-required", "send the \"ETag\" that you read "
                   "in \"If-Match\": if someone else changed the document, "
                   "you get 412 and the current version; or \"If-Match: *\" "
                   "for any version, or \"If-None-Match: *\" to create");
    }

    api->any = (h == NULL || (h->value.len == 1 && h->value.data[0] == '*'));

    return ngx_rl_api_reason(api);
}


/*
 * Whether work->tags, or "*", has the tag of the base; sets work->most. May be
 * called by a thread. nginx makes the tag of a compressed answer weak. Quotes
 * may be forgotten.
 */
static ngx_uint_t
ngx_rl_api_tags_have(ngx_rl_api_work_t *work)
{
    u_char     *p, *last, *start, *tag;
    uint64_t    n;
    ngx_uint_t  found;

    u_char  own[NGX_INT64_LEN + sizeof("-") + 16];

    if (work->tags.len == 0) {
        return 0;
    }

    if (work->tags.len == 1 && work->tags.data[0] == '*') {
        return 1;
    }

    tag = ngx_rl_api_tag(own, work->edit.version, work->id);
    p = work->tags.data;
    last = p + work->tags.len;
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

        work->most = ngx_max(work->most, n);
        found |= (p - start == tag - own
                  && ngx_memcmp(start, own, p - start) == 0);

        while (p < last && *p != ',') {
            p++;
        }
    }

    return found;
}


/*
 * The first of these that there is: what "author=" says, the name of the token,
 * the subject of the client's certificate.
 */
static ngx_int_t
ngx_rl_api_author(ngx_rl_api_t *api, ngx_str_t *author)
{
    ngx_http_request_t         *r;
    ngx_http_variable_value_t  *subject;

    static ngx_str_t  name = ngx_string("ssl_client_s_dn");

    r = api->request;

    ngx_str_null(author);

    if (api->conf->author
        && ngx_rl_value_get(r, api->conf->author, author) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (author->len == 0) {
        *author = api->token;
    }

    if (author->len == 0 && api->conf->guard.tokens == NULL) {
        subject = ngx_http_get_variable(r, &name,
                                        ngx_hash_key(name.data, name.len));

        if (subject && !subject->not_found) {
            *author = ngx_rl_str(subject->data, subject->len);
        }
    }

    author->len = ngx_min(author->len, NGX_RL_API_REASON);

    /* a character that was cut, or what is none */

    while (author->len && !ngx_rl_api_utf8(author)) {
        author->len--;
    }

    return NGX_OK;
}


/*
 * The path is that below the location: that of a key with its digest, and
 * "?rule=", without which a change of a tier is another one.
 */
ngx_int_t
ngx_rl_api_record(ngx_rl_api_t *api, ngx_rl_record_t *record)
{
    u_char              *p, buf[NGX_RL_DOCUMENT_KEY];
    ngx_str_t            below, key, rule;
    ngx_http_request_t  *r;

    r = api->request;

    record->reason = api->reason;
    record->address = r->connection->addr_text;
    record->method = r->method_name;

    if (ngx_rl_api_author(api, &record->author) != NGX_OK) {
        return NGX_ERROR;
    }

    below = api->path;
    rule = api->args.rule;
    ngx_str_null(&key);

    if (api->route->resource == NGX_RL_EDIT_TIER_ASSIGNMENT
        && !api->conf->limiter->clear)
    {
        below.len -= api->name.len;
        key = ngx_rl_document_key(&api->name, buf);
    }

    if (!ngx_rl_api_utf8(&rule)) {
        ngx_str_null(&rule);
    }

    p = ngx_pnalloc(r->pool, sizeof("/?rule=") + below.len + key.len
                             + rule.len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    record->path.data = p;
    p = ngx_sprintf(p, "/%V%V", &below, &key);

    if (rule.len) {
        p = ngx_sprintf(p, "?rule=%V", &rule);
    }

    record->path.len = p - record->path.data;

    return NGX_OK;
}


/* Goes with the job's pool. */
static void
ngx_rl_api_work_cleanup(void *data)
{
    ngx_rl_api_work_t *work = data;

    if (work->edit.policy) {
        ngx_rl_policy_release(work->edit.policy);
    }

    if (work->turn) {
        ngx_rl_api_turn_end();
    }
}


static ngx_rl_edit_method_e
ngx_rl_api_edit_method(const ngx_rl_api_t *api)
{
    /* the way back to a version is the document of that version, put */

    if (api->route->flags & NGX_RL_API_NO_BODY) {
        return NGX_RL_EDIT_PUT;
    }

    switch (api->request->method) {

    case NGX_HTTP_PUT:
        return NGX_RL_EDIT_PUT;

    case NGX_HTTP_POST:
        return NGX_RL_EDIT_POST;

    case NGX_HTTP_PATCH:
        return NGX_RL_EDIT_PATCH;

    case NGX_HTTP_DELETE:
        return NGX_RL_EDIT_DELETE;

    default:
        return NGX_RL_EDIT_GET;
    }
}


static ngx_int_t
ngx_rl_api_work_copy(ngx_pool_t *pool, ngx_str_t *to, const ngx_str_t *from)
{
    if (from->len == 0) {
        ngx_str_null(to);
        return NGX_OK;
    }

    *to = ngx_rl_str(ngx_pstrdup(pool, (ngx_str_t *) from), from->len);

    return to->data ? NGX_OK : NGX_ERROR;
}


static ngx_rl_api_work_t *
ngx_rl_api_work(ngx_rl_api_t *api, const ngx_rl_record_t *base)
{
    ngx_pool_t          *pool;
    ngx_table_elt_t     *h;
    ngx_pool_cleanup_t  *cln;
    ngx_rl_edit_t       *edit;
    ngx_rl_api_work_t   *work;

    /* the log of the connection ends with it */

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, ngx_cycle->log);
    if (pool == NULL) {
        return NULL;
    }

    cln = ngx_pool_cleanup_add(pool, sizeof(ngx_rl_api_work_t));
    if (cln == NULL) {
        goto failed;
    }

    work = cln->data;
    ngx_memzero(work, sizeof(ngx_rl_api_work_t));

    cln->handler = ngx_rl_api_work_cleanup;

    work->api = api;
    work->writes = ngx_rl_api_writes(api);

    edit = &work->edit;

    edit->pool = pool;
    edit->limiter = api->conf->limiter;
    edit->resource = api->route->resource;
    edit->method = ngx_rl_api_edit_method(api);
    edit->clear = edit->limiter->clear;
    edit->now = ngx_time();
    edit->force = (api->args.force.len == 1 && api->args.force.data[0] == '1');
    edit->dry_run = (api->args.dry_run.len != 0);

    if (RAND_bytes(edit->random, sizeof(edit->random)) != 1
        || ngx_rl_api_work_copy(pool, &edit->name, &api->name) != NGX_OK
        || ngx_rl_api_work_copy(pool, &edit->rule, &api->args.rule) != NGX_OK
        || ngx_rl_api_work_copy(pool, &edit->key, &api->args.keys[0]) != NGX_OK
        || ngx_rl_api_work_copy(pool, &edit->owner, &api->args.owner) != NGX_OK
        || ngx_rl_api_work_copy(pool, &edit->body, &api->body.text) != NGX_OK)
    {
        goto failed;
    }

    h = work->writes ? api->request->headers_in.if_match
                     : api->request->headers_in.if_none_match;

    work->conditional = work->writes ? !api->any
                        : (h && edit->method == NGX_RL_EDIT_GET);

    if (work->conditional
        && ngx_rl_api_work_copy(pool, &work->tags, &h->value) != NGX_OK)
    {
        goto failed;
    }

    if (base) {
        work->based = 1;
        work->id = base->id;
        work->lineage = base->lineage;
        edit->version = base->version;

        if (ngx_rl_api_work_copy(pool, &edit->base, &base->document) != NGX_OK)
        {
            goto failed;
        }
    }

    return work;

failed:

    ngx_destroy_pool(pool);

    return NULL;
}


static void
ngx_rl_api_read_handler(void *data, const ngx_rl_follow_result_t *result)
{
    ngx_rl_api_t *api = data;

    ngx_rl_api_result(api, result);

    /* of a record that memory was missing for, the length may be known alone */

    if (result->n && result->status != NGX_RL_FOLLOW_FAILED) {
        api->record = *result->records;

        if (ngx_rl_api_work_copy(api->request->pool, &api->record.document,
                                 &result->records->document)
            != NGX_OK)
        {
            api->status = NGX_RL_FOLLOW_FAILED;
        }
    }

    ngx_rl_api_wake(api, &ngx_posted_events);
}


/* Reads a version to api->record, and goes on with next. */
static ngx_int_t
ngx_rl_api_read(ngx_rl_api_t *api, uint64_t version, ngx_rl_api_pt next)
{
    return ngx_rl_api_call(api, NGX_RL_FOLLOW_READ, version, 0, NULL,
                           ngx_rl_api_read_handler, next);
}


static ngx_int_t
ngx_rl_api_edit_newer(ngx_rl_api_t *api)
{
    switch (api->status) {

    case NGX_RL_FOLLOW_OK:
        return ngx_rl_api_edit_start(api, 1);

    case NGX_RL_FOLLOW_NOT_FOUND:
        return ngx_rl_api_edit_start(api, 0);

    case NGX_RL_FOLLOW_TOO_LARGE:

        /* a document that cannot be read can be replaced */

        if (api->route->resource == NGX_RL_EDIT_DOCUMENT
            && ngx_rl_api_edit_method(api) == NGX_RL_EDIT_PUT)
        {
            return ngx_rl_api_edit_start(api, 1);
        }

        /* fall through */

    default:
        return ngx_rl_api_failed(api);
    }
}


/* The client has this document, or does not know it and wants to change it. */
static ngx_int_t
ngx_rl_api_edit_stopped(ngx_rl_api_t *api)
{
    ngx_rl_api_work_t  *work;

    work = api->work;

    if (!work->writes) {
        ngx_rl_api_etag(api, work->edit.version, work->id);
        return ngx_rl_api_answer(api, NGX_HTTP_NOT_MODIFIED, NULL);
    }

    /* another gateway has answered this client with a newer version */

    if (work->most > work->edit.version && api->tries++ == 0) {
        return ngx_rl_api_read(api, work->most, ngx_rl_api_edit_newer);
    }

    api->version = ngx_max(api->version, work->edit.version);
    api->status = NGX_RL_FOLLOW_CONFLICT;

    return ngx_rl_api_failed(api);
}


/* Headers: a client may PUT the body again. The texts may be a client's. */
static ngx_int_t
ngx_rl_api_edit_warnings(ngx_rl_api_t *api)
{
    u_char                   *p, *text;
    ngx_uint_t                i;
    const ngx_rl_problem_t   *warning;
    const ngx_rl_problems_t  *warnings;

    warnings = &api->work->edit.warnings;
    warning = warnings->list.elts;

    for (i = 0; i < ngx_min(warnings->list.nelts, NGX_RL_API_WARNINGS); i++) {
        text = ngx_pnalloc(api->request->pool, NGX_RL_API_WARNING);
        if (text == NULL) {
            return NGX_ERROR;
        }

        p = ngx_snprintf(text, NGX_RL_API_WARNING - 1, "%V %V",
                         &warning[i].pointer, &warning[i].detail);
        *p = '\0';

        while (p != text) {
            p--;
            *p = (*p < 0x20 || *p >= 0x7f) ? '?' : *p;
        }

        ngx_rl_api_header(api, "X-RateLimit-Warning", (char *) text);
    }

    return NGX_OK;
}


/*
 * Shows what is there now; after a DELETE the version. The tag is that of the
 * version. A client may PUT the body again, so a header says that the state
 * file does not have it yet. Location is the path of the request, and the id of
 * a POSTed element.
 */
static ngx_int_t
ngx_rl_api_edit_answer(ngx_rl_api_t *api)
{
    u_char         *p, *location;
    size_t          len;
    json_t         *json;
    uint64_t        version;
    ngx_str_t      *made, *uri;
    ngx_uint_t      status, changed, unsaved;
    ngx_rl_edit_t  *edit;

    edit = &api->work->edit;

    changed = (edit->document.len && api->work->writes);
    unsaved = (changed && !api->saved);
    version = edit->version + changed;
    status = NGX_HTTP_OK;

    ngx_rl_api_etag(api, version, changed ? api->id : api->work->id);

    if (unsaved) {
        ngx_rl_api_header(api, "X-RateLimit-Saved", "false");
    }

    if (ngx_rl_api_edit_warnings(api) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (edit->status == NGX_RL_EDIT_CREATED) {
        status = NGX_HTTP_CREATED;
        made = &edit->made;
        uri = &api->request->unparsed_uri;

        p = ngx_strlchr(uri->data, uri->data + uri->len, '?');
        len = p ? (size_t) (p - uri->data) : uri->len;

        location = ngx_pnalloc(api->request->pool,
                               len + sizeof("/") + made->len);
        if (location == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        (void) ngx_sprintf(location, "%*s%s%V%Z", len, uri->data,
                           made->len ? "/" : "", made);

        ngx_rl_api_header(api, "Location", (char *) location);
    }

    if (edit->reply.len) {
        return ngx_rl_api_answer(api, status, &edit->reply);
    }

    json = json_pack("{s:I}", "version", (json_int_t) version);

    if (unsaved) {
        (void) json_object_set_new(json, "saved", json_false());
    }

    return ngx_rl_api_json(api, status, json);
}


static ngx_int_t
ngx_rl_api_edit_changed(ngx_rl_api_t *api)
{
    if (api->status == NGX_RL_FOLLOW_OK) {
        return ngx_rl_api_edit_answer(api);
    }

    if (api->status != NGX_RL_FOLLOW_CONFLICT || !api->any
        || api->tries++ == NGX_RL_API_TRIES)
    {
        return ngx_rl_api_failed(api);
    }

    /* somebody was faster: the same change, of what is there now */

    return api->version ? ngx_rl_api_read(api, api->version,
                                          ngx_rl_api_edit_newer)
                        : ngx_rl_api_edit_start(api, 0);
}


/* The edit is possible: it is shown, or the next document is put. */
static ngx_int_t
ngx_rl_api_edit_made(ngx_rl_api_t *api)
{
    ngx_rl_edit_t      *edit;
    ngx_rl_record_t     record;
    ngx_rl_api_work_t  *work;

    work = api->work;
    edit = &work->edit;

    if (api->create && edit->status != NGX_RL_EDIT_CREATED) {
        api->version = edit->version;

        ngx_rl_api_etag(api, api->version, work->id);

        return ngx_rl_api_problem(api, NGX_HTTP_PRECONDITION_FAILED, "exists",
            "it is there, and \"If-None-Match: *\" only creates; nothing is "
            "changed");
    }

    if (edit->resource == NGX_RL_EDIT_VALIDATE) {

        ngx_rl_api_etag(api, edit->version, work->id);

        return ngx_rl_api_json(api, NGX_HTTP_OK, json_pack("{s:b, s:o}",
            "valid", 1, "warnings", ngx_rl_api_problem_list(&edit->warnings)));
    }

    if (!work->writes) {
        return ngx_rl_api_edit_answer(api);
    }

    if (edit->dry_run) {
        ngx_rl_api_etag(api, edit->version, work->id);

        return (ngx_rl_api_edit_warnings(api) == NGX_OK)
               ? ngx_rl_api_answer(api, NGX_HTTP_OK, &edit->reply)
               : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* the document stays as it is here; does the fleet have the same? */

    if (edit->document.len == 0) {
        return ngx_rl_api_call(api, NGX_RL_FOLLOW_CHECK, edit->version,
                               work->id, NULL, ngx_rl_api_called,
                               ngx_rl_api_edit_changed);
    }

    ngx_memzero(&record, sizeof(ngx_rl_record_t));

    record.lineage = work->lineage;
    record.time_ms = ngx_rl_wall_ms();
    record.document = edit->document;

    if (ngx_rl_api_record(api, &record) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    api->writing = 1;

    return ngx_rl_api_call(api, NGX_RL_FOLLOW_PUT, edit->version, work->id,
                           &record, ngx_rl_api_called, ngx_rl_api_edit_changed);
}


static ngx_int_t
ngx_rl_api_edit_outcome(ngx_rl_api_t *api)
{
    ngx_rl_edit_t  *edit;

    edit = &api->work->edit;

    switch (edit->status) {

    case NGX_RL_EDIT_OK:
    case NGX_RL_EDIT_CREATED:
    case NGX_RL_EDIT_GONE:
        return ngx_rl_api_edit_made(api);

    case NGX_RL_EDIT_NOT_FOUND:

        ngx_rl_api_etag(api, edit->version, api->work->id);

        return ngx_rl_api_problem(api, NGX_HTTP_NOT_FOUND, "not-found",
            "there is no such name in the document, which is version %uL",
            edit->version);

    case NGX_RL_EDIT_INVALID:

        api->problems = &edit->problems;

        return ngx_rl_api_problem(api, 422, "invalid",
                   "the document is not valid; nothing is changed");

    case NGX_RL_EDIT_REJECTS_ALL:

        api->problems = &edit->problems;

        return ngx_rl_api_problem(api, 422, "deny-all",
                   "the document would reject all requests; \"?force=1\" makes "
                   "it so");

    case NGX_RL_EDIT_TOO_LARGE:
        api->status = NGX_RL_FOLLOW_TOO_LARGE;
        return ngx_rl_api_failed(api);

    default:
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
}


/* Compiles regular expressions, which a thread must not: a slice a time. */
static ngx_int_t
ngx_rl_api_edit_finish(ngx_rl_api_t *api)
{
    ngx_int_t       rc;
    ngx_rl_edit_t  *edit;

    edit = &api->work->edit;

    if (edit->policy) {
        rc = ngx_rl_policy_finish(edit->policy, NGX_RL_API_SLICE_MS,
                                  &edit->problems);
        if (rc == NGX_AGAIN) {
            ngx_rl_api_wait(api);
            return NGX_BUSY;
        }

        if (rc == NGX_ERROR) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        if (ngx_rl_edit_invalid(edit)) {
            edit->status = NGX_RL_EDIT_INVALID;
        }

        ngx_rl_policy_release(edit->policy);
        edit->policy = NULL;
    }

    if (api->work->turn) {
        api->work->turn = 0;
        ngx_rl_api_turn_end();
    }

    return api->work->stopped ? ngx_rl_api_edit_stopped(api)
                              : ngx_rl_api_edit_outcome(api);
}


static void
ngx_rl_api_edit_work(void *data)
{
    ngx_rl_api_work_t *work = data;

    ngx_rl_edit_t    *edit;
    ngx_rl_record_t   record;

    edit = &work->edit;

    if (!work->based) {

        if (ngx_rl_follow_current(edit->limiter, edit->pool, &record)
            == NGX_ERROR)
        {
            edit->status = NGX_RL_EDIT_ERROR;
            return;
        }

        work->id = record.id;
        work->lineage = record.lineage;
        edit->base = record.document;
        edit->version = record.version;
    }

    if (work->conditional && ngx_rl_api_tags_have(work) != work->writes) {
        work->stopped = 1;
        return;
    }

    ngx_rl_edit(edit);
}


static void
ngx_rl_api_edit_done(void *data)
{
    ngx_rl_api_work_t *work = data;

    work->job = NULL;
    ngx_rl_api_wake(work->api, &ngx_posted_events);
}


static ngx_int_t
ngx_rl_api_edit_begin(ngx_rl_api_t *api)
{
    ngx_rl_api_work_t  *work;

    work = ngx_rl_api_work(api, api->based ? &api->record : NULL);
    if (work == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    work->turn = api->turn;
    api->turn = 0;
    api->work = work;

    api->next = ngx_rl_api_edit_finish;

    work->job = ngx_rl_job_start(work->edit.pool, NGX_RL_JOB_COMPUTES,
                                 ngx_rl_api_edit_work, ngx_rl_api_edit_done,
                                 work);

    return work->job ? NGX_BUSY : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


/*
 * Edits the document of api->record, or the current one; and does what follows,
 * also the put. A read does not wait for its turn.
 */
static ngx_int_t
ngx_rl_api_edit_start(ngx_rl_api_t *api, ngx_uint_t based)
{
    ngx_int_t  rc;

    ngx_rl_api_work_free(api->work);
    api->work = NULL;

    api->based = based;
    api->next = ngx_rl_api_edit_begin;

    if (ngx_rl_api_edit_method(api) == NGX_RL_EDIT_GET) {
        return ngx_rl_api_edit_begin(api);
    }

    rc = ngx_rl_api_turn_take(api);

    if (rc == NGX_DECLINED) {
        return ngx_rl_api_problem(api, NGX_HTTP_SERVICE_UNAVAILABLE,
            "unavailable",
            "too many changes or validations wait, nothing is changed");
    }

    return (rc == NGX_OK) ? ngx_rl_api_edit_begin(api) : rc;
}


ngx_int_t
ngx_rl_api_edit(ngx_rl_api_t *api)
{
    ngx_int_t  rc;

    rc = ngx_rl_api_conditions(api);

    return (rc == NGX_DECLINED) ? ngx_rl_api_edit_start(api, 0) : rc;
}


static void
ngx_rl_api_versions_handler(void *data, const ngx_rl_follow_result_t *result)
{
    ngx_rl_api_t *api = data;

    json_t                 *list;
    ngx_uint_t              i;
    const ngx_rl_record_t  *record;

    ngx_rl_api_result(api, result);

    if (api->status != NGX_RL_FOLLOW_OK) {
        ngx_rl_api_wake(api, &ngx_posted_events);
        return;
    }

    list = json_array();

    for (i = 0; i < result->n; i++) {

        record = &result->records[i];

        ngx_rl_json_append(&list,
            json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:I}",
                "version", (json_int_t) record->version,
                "time", ngx_rl_json_time(record->time_ms),
                "author", ngx_rl_json_text(&record->author),
                "address", ngx_rl_json_text(&record->address),
                "method", ngx_rl_json_text(&record->method),
                "path", ngx_rl_json_text(&record->path),
                "reason", ngx_rl_json_text(&record->reason),
                "bytes", (json_int_t) record->document.len));
    }

    if (ngx_rl_json_dump(api->request->pool,
                         json_pack("{s:I, s:o}",
                                   "version", (json_int_t) result->version,
                                   "versions", list),
                         &api->text)
        != NGX_OK)
    {
        api->status = NGX_RL_FOLLOW_FAILED;
    }

    ngx_rl_api_wake(api, &ngx_posted_events);
}


static ngx_int_t
ngx_rl_api_versions_answer(ngx_rl_api_t *api)
{
    if (api->status != NGX_RL_FOLLOW_OK) {
        return ngx_rl_api_failed(api);
    }

    ngx_rl_api_etag(api, api->version, api->id);

    return ngx_rl_api_answer(api, NGX_HTTP_OK, &api->text);
}


ngx_int_t
ngx_rl_api_versions(ngx_rl_api_t *api)
{
    return ngx_rl_api_call(api, NGX_RL_FOLLOW_VERSIONS, 0, 0, NULL,
                           ngx_rl_api_versions_handler,
                           ngx_rl_api_versions_answer);
}


/* "GET /document" at that time; or from here on a "PUT" of it. */
static ngx_int_t
ngx_rl_api_version_got(ngx_rl_api_t *api)
{
    if (api->status != NGX_RL_FOLLOW_OK) {
        return ngx_rl_api_failed(api);
    }

    if (!ngx_rl_api_writes(api)) {
        return ngx_rl_api_edit_start(api, 1);
    }

    api->body.text = api->record.document;

    return ngx_rl_api_edit_start(api, 0);
}


/* A version as it was, or the way back to it. */
ngx_int_t
ngx_rl_api_version(ngx_rl_api_t *api)
{
    uint64_t   version;
    ngx_int_t  rc;

    if (ngx_rl_api_writes(api)) {

        rc = ngx_rl_api_conditions(api);
        if (rc != NGX_DECLINED) {
            return rc;
        }
    }

    /* "01" is no other name of version 1 */

    if (api->name.data[0] == '0'
        || ngx_rl_number_parse(api->name.data, api->name.len, 1,
                               (uint64_t) 1 << 53, &version)
           != 0)
    {
        api->status = NGX_RL_FOLLOW_NOT_FOUND;
        return ngx_rl_api_failed(api);
    }

    ngx_str_null(&api->name);

    return ngx_rl_api_read(api, version, ngx_rl_api_version_got);
}
