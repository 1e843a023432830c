/*
 * Answers of the endpoint: JSON, or a problem of RFC 9457, and their headers.
 */

#include "ngx_http_ratelimit_api.h"

#include <jansson.h>

/* of a problem's detail */
#define NGX_HTTP_RATELIMIT_API_DETAIL  512

static ngx_int_t ngx_http_ratelimit_api_send(ngx_http_ratelimit_api_t *api,
    ngx_uint_t status, const ngx_str_t *type, const ngx_str_t *body);
static ngx_int_t ngx_http_ratelimit_api_problem_send(
    ngx_http_ratelimit_api_t *api, ngx_uint_t status, const char *type,
    const ngx_str_t *detail, const ngx_ratelimit_problems_t *problems);
static const ngx_str_t *ngx_http_ratelimit_api_status_line(ngx_uint_t status);

static const struct {
    ngx_uint_t  status;
    ngx_str_t   line;
} ngx_http_ratelimit_api_lines[] = {
    { 400, ngx_string("400 Bad Request") },
    { 401, ngx_string("401 Unauthorized") },
    { 403, ngx_string("403 Forbidden") },
    { 404, ngx_string("404 Not Found") },
    { 405, ngx_string("405 Not Allowed") },
    { 409, ngx_string("409 Conflict") },
    { 412, ngx_string("412 Precondition Failed") },
    { 413, ngx_string("413 Request Entity Too Large") },
    { 415, ngx_string("415 Unsupported Media Type") },
    { 422, ngx_string("422 Unprocessable Content") },
    { 428, ngx_string("428 Precondition Required") },
    { 500, ngx_string("500 Internal Server Error") },
    { 503, ngx_string("503 Service Temporarily Unavailable") },
    { 504, ngx_string("504 Gateway Time-out") },
    { 0, ngx_string("000 Error") }
};


ngx_int_t
ngx_http_ratelimit_api_answer(ngx_http_ratelimit_api_t *api,
    ngx_uint_t status, const ngx_str_t *body)
{
    static const ngx_str_t  type = ngx_string("application/json");

    return ngx_http_ratelimit_api_send(api, status, &type, body);
}


ngx_int_t
ngx_http_ratelimit_api_json(ngx_http_ratelimit_api_t *api, ngx_uint_t status,
    json_t *json)
{
    ngx_str_t  body;

    if (ngx_http_ratelimit_json_dump(api->request->pool, json, &body)
        != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_ratelimit_api_answer(api, status, &body);
}


ngx_int_t
ngx_http_ratelimit_api_problem(ngx_http_ratelimit_api_t *api,
    ngx_uint_t status, const char *type, const char *detail, ...)
{
    u_char     buf[NGX_HTTP_RATELIMIT_API_DETAIL];
    va_list    args;
    ngx_str_t  text;

    va_start(args, detail);
    text.data = buf;
    text.len = ngx_vslprintf(buf, buf + sizeof(buf), detail, args) - buf;
    va_end(args);

    return ngx_http_ratelimit_api_problem_send(api, status, type, &text, NULL);
}


ngx_int_t
ngx_http_ratelimit_api_problems(ngx_http_ratelimit_api_t *api,
    ngx_uint_t status, const char *type,
    const ngx_ratelimit_problems_t *problems, const char *detail)
{
    ngx_str_t  text;

    text.data = (u_char *) detail;
    text.len = ngx_strlen(detail);

    return ngx_http_ratelimit_api_problem_send(api, status, type, &text,
                                               problems);
}


/* problems may be NULL. 412 names the version that is current. */
static ngx_int_t
ngx_http_ratelimit_api_problem_send(ngx_http_ratelimit_api_t *api,
    ngx_uint_t status, const char *type, const ngx_str_t *detail,
    const ngx_ratelimit_problems_t *problems)
{
    json_t           *json;
    ngx_str_t         body;
    const ngx_str_t  *line;

    static const ngx_str_t  media = ngx_string("application/problem+json");

    line = ngx_http_ratelimit_api_status_line(status);

    json = json_pack("{s:o, s:s, s:i, s:o}",
                     "type", json_sprintf("urn:ratelimit:problem:%s", type),
                     "title", (char *) line->data + sizeof("400 ") - 1,
                     "status", (int) status,
                     "detail", ngx_http_ratelimit_json_text(detail));

    if (status == NGX_HTTP_PRECONDITION_FAILED) {
        (void) json_object_set_new(json, "version",
                                   json_integer(api->version));
    }

    if (problems && problems->n) {
        (void) json_object_set_new(json, "errors",
                                ngx_http_ratelimit_api_problem_list(problems));
    }

    if (problems && problems->n > problems->list.nelts) {
        (void) json_object_set_new(json, "more",
                          json_integer(problems->n - problems->list.nelts));
    }

    if (ngx_http_ratelimit_json_dump(api->request->pool, json, &body)
        != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_ratelimit_api_send(api, status, &media, &body);
}


json_t *
ngx_http_ratelimit_api_problem_list(const ngx_ratelimit_problems_t *problems)
{
    json_t                         *list;
    ngx_uint_t                      i;
    const ngx_ratelimit_problem_t  *problem;

    list = json_array();
    problem = problems->list.elts;

    for (i = 0; i < problems->list.nelts; i++) {
        (void) json_array_append_new(list, json_pack("{s:o, s:o, s:o}",
                   "id", problem[i].id.len
                         ? ngx_http_ratelimit_json_text(&problem[i].id)
                         : json_null(),
                   "pointer",
                   ngx_http_ratelimit_json_text(&problem[i].pointer),
                   "detail",
                   ngx_http_ratelimit_json_text(&problem[i].detail)));
    }

    return list;
}


static const ngx_str_t *
ngx_http_ratelimit_api_status_line(ngx_uint_t status)
{
    ngx_uint_t  i;

    for (i = 0; ngx_http_ratelimit_api_lines[i].status; i++) {
        if (ngx_http_ratelimit_api_lines[i].status == status) {
            break;
        }
    }

    return &ngx_http_ratelimit_api_lines[i].line;
}


/*
 * The request's own conditions have been decided here; nginx would compare
 * If-Match with the ETag of the answer, which is that of the next version.
 */
static ngx_int_t
ngx_http_ratelimit_api_send(ngx_http_ratelimit_api_t *api, ngx_uint_t status,
    const ngx_str_t *type, const ngx_str_t *body)
{
    ngx_int_t            rc;
    ngx_buf_t           *b;
    ngx_chain_t          out;
    ngx_http_request_t  *r;

    r = api->request;

    r->disable_not_modified = 1;
    r->expect_tested = 1;

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    ngx_http_ratelimit_api_header(api, "Cache-Control", "no-store");
    ngx_http_ratelimit_api_header(api, "X-Content-Type-Options", "nosniff");

    if (api->failed) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->headers_out.status = status;
    r->headers_out.content_length_n = body ? (off_t) body->len : 0;

    if (status == 422 || status == 428) {
        r->headers_out.status_line
            = *ngx_http_ratelimit_api_status_line(status);
    }

    if (body) {
        r->headers_out.content_type = *type;
        r->headers_out.content_type_len = type->len;
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

    b->last_buf = 1;
    b->last_in_chain = 1;

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}


void
ngx_http_ratelimit_api_header(ngx_http_ratelimit_api_t *api,
    const char *name, const char *value)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&api->request->headers_out.headers);

    if (h == NULL) {
        api->failed = 1;
        return;
    }

    h->hash = 1;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    h->key.data = (u_char *) name;
    h->key.len = ngx_strlen(name);
    h->value.data = (u_char *) value;
    h->value.len = ngx_strlen(value);
}


void
ngx_http_ratelimit_api_etag(ngx_http_ratelimit_api_t *api, uint64_t version,
    uint64_t id)
{
    u_char  *p, *text;

    text = ngx_pnalloc(api->request->pool,
                       NGX_INT64_LEN + sizeof("\"-\"") + 16);
    if (text == NULL) {
        api->failed = 1;
        return;
    }

    text[0] = '"';
    p = ngx_http_ratelimit_api_tag(text + 1, version, id);
    *p++ = '"';
    *p = '\0';

    ngx_http_ratelimit_api_header(api, "ETag", (char *) text);
}


u_char *
ngx_http_ratelimit_api_tag(u_char *p, uint64_t version, uint64_t id)
{
    return version ? ngx_sprintf(p, "%uL-%016xL", version, id)
                   : ngx_sprintf(p, "0");
}


void
ngx_http_ratelimit_api_result(ngx_http_ratelimit_api_t *api,
    const ngx_ratelimit_sync_result_t *result)
{
    api->call = NULL;
    api->status = result->status;
    api->version = result->version;
    api->id = result->id;
    api->saved = result->saved;
    api->writing = 0;

    ngx_str_null(&api->said);

    if (result->reason.len) {
        api->said.data = ngx_pstrdup(api->request->pool,
                                     (ngx_str_t *) &result->reason);
        api->said.len = api->said.data ? result->reason.len : 0;
    }
}


ngx_int_t
ngx_http_ratelimit_api_failed(ngx_http_ratelimit_api_t *api)
{
    switch (api->status) {

    case NGX_RATELIMIT_SYNC_UNAVAILABLE:
        ngx_http_ratelimit_api_header(api, "Retry-After",
                                      NGX_HTTP_RATELIMIT_API_RETRY);

        return ngx_http_ratelimit_api_problem(api,
                   NGX_HTTP_SERVICE_UNAVAILABLE, "unavailable",
                   "Redis did not accept the request, nothing is changed: %V",
                   &api->said);

    case NGX_RATELIMIT_SYNC_UPGRADED:

        /* the next connection may be one of the new master's */

        api->request->keepalive = 0;

        ngx_http_ratelimit_api_header(api, "Retry-After",
                                      NGX_HTTP_RATELIMIT_API_RETRY);

        return ngx_http_ratelimit_api_problem(api,
                   NGX_HTTP_SERVICE_UNAVAILABLE, "unavailable",
                   "nginx is being upgraded, nothing is changed: send the "
                   "change again, the workers of the new binary take it");

    case NGX_RATELIMIT_SYNC_UNKNOWN:
        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_GATEWAY_TIME_OUT,
                   "unknown-outcome", "it is not known whether the change was "
                   "made: read the document again: %V", &api->said);

    case NGX_RATELIMIT_SYNC_TOO_LARGE:
        return ngx_http_ratelimit_api_problem(api,
                   NGX_HTTP_REQUEST_ENTITY_TOO_LARGE, "too-large",
                   "the document has more than %d bytes",
                   NGX_RATELIMIT_DOCUMENT_MAX);

    case NGX_RATELIMIT_SYNC_NOT_FOUND:
        return ngx_http_ratelimit_api_problem(api, NGX_HTTP_NOT_FOUND,
                                              "not-found",
                                              "there is no such version");

    case NGX_RATELIMIT_SYNC_CONFLICT:
        return ngx_http_ratelimit_api_problem(api,
                   NGX_HTTP_PRECONDITION_FAILED, "conflict",
                   "version %uL is current", api->version);

    default:
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
}
