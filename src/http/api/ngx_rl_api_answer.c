/*
 * Answers of the endpoint: JSON, or a problem of RFC 9457, and their headers.
 */

#include "ngx_rl_api.h"

#include <jansson.h>

#define NGX_RL_API_DETAIL  512   /* bytes of a problem's detail */
#define NGX_RL_API_RETRY   "1"   /* seconds, after a failure */


static const struct {
    ngx_uint_t  status;
    ngx_str_t   line;
} ngx_rl_api_lines[] = {
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


void
ngx_rl_api_header(ngx_rl_api_t *api, const char *name, const char *value)
{
    if (ngx_rl_header(api->request, name, value) != NGX_OK) {
        api->failed = 1;
    }
}


static const ngx_str_t *
ngx_rl_api_status_line(ngx_uint_t status)
{
    ngx_uint_t  i;

    for (i = 0; ngx_rl_api_lines[i].status; i++) {
        if (ngx_rl_api_lines[i].status == status) {
            break;
        }
    }

    return &ngx_rl_api_lines[i].line;
}


/*
 * The request's own conditions have been decided here; nginx would compare
 * If-Match with the ETag of the answer, which is that of the next version.
 */
ngx_int_t
ngx_rl_api_answer(ngx_rl_api_t *api, ngx_uint_t status, const ngx_str_t *body)
{
    ngx_http_request_t  *r;

    static const ngx_str_t  json = ngx_string("application/json");
    static const ngx_str_t  problem = ngx_string("application/problem+json");

    r = api->request;

    r->disable_not_modified = 1;
    r->expect_tested = 1;

    ngx_rl_api_header(api, "Cache-Control", "no-store");
    ngx_rl_api_header(api, "X-Content-Type-Options", "nosniff");

    if (api->failed) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (status == 422 || status == 428) {
        r->headers_out.status_line = *ngx_rl_api_status_line(status);
    }

    return ngx_rl_send(r, status,
                       (status < NGX_HTTP_BAD_REQUEST
                        || status == NGX_HTTP_TOO_MANY_REQUESTS)
                       ? &json : &problem, body);
}


ngx_int_t
ngx_rl_api_json(ngx_rl_api_t *api, ngx_uint_t status, json_t *json)
{
    ngx_str_t  body;

    if (ngx_rl_json_dump(api->request->pool, json, &body) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_rl_api_answer(api, status, &body);
}


json_t *
ngx_rl_api_problem_list(const ngx_rl_problems_t *problems)
{
    json_t                  *list;
    ngx_uint_t               i;
    const ngx_rl_problem_t  *problem;

    list = json_array();
    problem = problems->list.elts;

    for (i = 0; i < problems->list.nelts; i++) {
        ngx_rl_json_append(&list, json_pack("{s:o, s:o, s:o}",
                   "id", ngx_rl_json_name(&problem[i].id),
                   "pointer",
                   ngx_rl_json_text(&problem[i].pointer),
                   "detail",
                   ngx_rl_json_text(&problem[i].detail)));
    }

    return list;
}


/* 412 names the version that is current. */
ngx_int_t
ngx_rl_api_problem(ngx_rl_api_t *api, ngx_uint_t status, const char *type,
    const char *detail, ...)
{
    u_char                    buf[NGX_RL_API_DETAIL];
    json_t                   *json;
    va_list                   args;
    ngx_str_t                 text;
    const ngx_str_t          *line;
    const ngx_rl_problems_t  *problems;

    va_start(args, detail);
    text.data = buf;
    text.len = ngx_vslprintf(buf, buf + sizeof(buf), detail, args) - buf;
    va_end(args);

    if (status == NGX_HTTP_SERVICE_UNAVAILABLE) {
        ngx_rl_api_header(api, "Retry-After", NGX_RL_API_RETRY);
    }

    line = ngx_rl_api_status_line(status);

    json = json_pack("{s:o, s:s, s:i, s:o}",
                     "type", json_sprintf("urn:ratelimit:problem:%s", type),
                     "title", (char *) line->data + sizeof("400 ") - 1,
                     "status", (int) status,
                     "detail", ngx_rl_json_text(&text));

    if (status == NGX_HTTP_PRECONDITION_FAILED) {
        (void) json_object_set_new(json, "version", json_integer(api->version));
    }

    problems = api->problems;

    if (problems && problems->n) {
        (void) json_object_set_new(json, "errors",
                                   ngx_rl_api_problem_list(problems));
    }

    if (problems && problems->n > problems->list.nelts) {
        (void) json_object_set_new(json, "more",
                          json_integer(problems->n - problems->list.nelts));
    }

    return ngx_rl_api_json(api, status, json);
}


u_char *
ngx_rl_api_tag(u_char *p, uint64_t version, uint64_t id)
{
    return version ? ngx_sprintf(p, "%uL-%016xL", version, id)
                   : ngx_sprintf(p, "0");
}


void
ngx_rl_api_etag(ngx_rl_api_t *api, uint64_t version, uint64_t id)
{
    u_char  *p, *text;

    text = ngx_pnalloc(api->request->pool,
                       NGX_INT64_LEN + sizeof("\"-\"") + 16);
    if (text == NULL) {
        api->failed = 1;
        return;
    }

    text[0] = '"';
    p = ngx_rl_api_tag(text + 1, version, id);
    *p++ = '"';
    *p = '\0';

    ngx_rl_api_header(api, "ETag", (char *) text);
}


ngx_int_t
ngx_rl_api_failed(ngx_rl_api_t *api)
{
    switch (api->status) {

    case NGX_RL_FOLLOW_UNAVAILABLE:
        return ngx_rl_api_problem(api, NGX_HTTP_SERVICE_UNAVAILABLE,
            "unavailable",
            (api->request->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))
            ? "Redis did not answer: %V"
            : "Redis did not accept the request, nothing is changed: %V",
            &api->said);

    case NGX_RL_FOLLOW_UPGRADED:

        /* the next connection may be one of the new master's */

        api->request->keepalive = 0;

        return ngx_rl_api_problem(api,
                   NGX_HTTP_SERVICE_UNAVAILABLE, "unavailable",
                   "nginx is being upgraded, nothing is changed: send the "
                   "change again, the workers of the new binary take it");

    case NGX_RL_FOLLOW_UNKNOWN:
        return ngx_rl_api_problem(api, NGX_HTTP_GATEWAY_TIME_OUT,
                   "unknown-outcome", "it is not known whether the change was "
                   "made: read before you send it again: %V", &api->said);

    case NGX_RL_FOLLOW_TOO_LARGE:
        return ngx_rl_api_problem(api, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
            "too-large", "the document has more than %d bytes",
            NGX_RL_DOCUMENT_MAX);

    case NGX_RL_FOLLOW_NOT_FOUND:
        return ngx_rl_api_problem(api, NGX_HTTP_NOT_FOUND, "not-found",
                                  "there is no such version");

    case NGX_RL_FOLLOW_CONFLICT:
        return ngx_rl_api_problem(api, NGX_HTTP_PRECONDITION_FAILED, "conflict",
                                  "version %uL is current", api->version);

    default:
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
}
