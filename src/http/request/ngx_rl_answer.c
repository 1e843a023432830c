/*
 * How a refused request ends: with the operator's error_page where there is
 * one, else with a body of ours, nginx's own page, or what gRPC understands.
 */

#include "ngx_rl_request.h"


/*
 * The clients of a window shall not come back in the same second. So each waits
 * up to retry_jitter percent longer, never less: all that names the wait has
 * it, and what tells when all tokens are back does not.
 */
void
ngx_rl_retry(ngx_rl_ctx_t *ctx)
{
    uint64_t           most_us;
    ngx_rl_counter_t  *counter;

    counter = ctx->check.strictest;

    if ((ctx->needs & NGX_RL_NEEDS_RETRY) && !ctx->early) {
        ngx_rl_retry_note(&ctx->check);
    }

    if (ctx->conf->retry_jitter == 0 || counter == NULL
        || counter->answer.retry_us == NGX_RL_NEVER)
    {
        return;
    }

    /* a wait is below 2^50 microseconds */

    most_us = counter->answer.retry_us * ctx->conf->retry_jitter / 100;
    counter->answer.retry_us += most_us * (ngx_random() & 0xfff) / 0xfff;
}


/* The name is in lower case. NULL: memory is out. */
static ngx_table_elt_t *
ngx_rl_add_header(ngx_http_request_t *r, const ngx_str_t *name, u_char *value,
    size_t len)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NULL;
    }

    h->hash = 1;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    h->key = *name;
    h->lowcase_key = name->data;
    h->value.data = value;
    h->value.len = len;

    return h;
}


/* RFC 6750, section 3. */
static ngx_int_t
ngx_rl_challenge(ngx_http_request_t *r)
{
    ngx_table_elt_t  *h;

    static ngx_str_t  name = ngx_string("www-authenticate");
    static ngx_str_t  value = ngx_string("Bearer error=\"invalid_token\"");

    h = ngx_rl_add_header(r, &name, value.data, value.len);
    if (h == NULL) {
        return NGX_ERROR;
    }

    ngx_str_set(&h->key, "WWW-Authenticate");
    r->headers_out.www_authenticate = h;

    return NGX_OK;
}


/* Whether nginx would take one: not twice, unless these are recursive. */
static ngx_uint_t
ngx_rl_has_error_page(ngx_http_request_t *r, ngx_uint_t status)
{
    ngx_uint_t                 i;
    ngx_http_err_page_t       *pages;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (clcf->error_pages == NULL || r->error_page || r->uri_changes == 0) {
        return 0;
    }

    pages = clcf->error_pages->elts;

    for (i = 0; i < clcf->error_pages->nelts; i++) {
        if (pages[i].status == (ngx_int_t) status) {
            return 1;
        }
    }

    return 0;
}


/* "application/grpc", "application/grpc+proto"; not "application/grpc-web" */
static ngx_uint_t
ngx_rl_is_grpc(ngx_http_request_t *r)
{
    ngx_str_t  *type;

    static ngx_str_t  grpc = ngx_string("application/grpc");

    if (r->headers_in.content_type == NULL) {
        return 0;
    }

    type = &r->headers_in.content_type->value;

    if (type->len < grpc.len
        || ngx_strncasecmp(type->data, grpc.data, grpc.len) != 0)
    {
        return 0;
    }

    return type->len == grpc.len
           || type->data[grpc.len] == '+' || type->data[grpc.len] == ';';
}


/*
 * A gRPC client looks for its status among the trailers; those of an answer
 * without messages are its headers ("Trailers-Only").
 */
static ngx_int_t
ngx_rl_send_grpc(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    u_char     *p, *last;
    ngx_int_t   rc;
    ngx_str_t  *status;

    static ngx_str_t  status_name = ngx_string("grpc-status");
    static ngx_str_t  message_name = ngx_string("grpc-message");
    static ngx_str_t  denied = ngx_string("7");      /* PERMISSION_DENIED */
    static ngx_str_t  exhausted = ngx_string("8");   /* RESOURCE_EXHAUSTED */
    static ngx_str_t  unavailable = ngx_string("14");
    static ngx_str_t  unauthenticated = ngx_string("16");

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    p = ngx_pnalloc(r->pool, NGX_RL_MESSAGE_BYTES);
    if (p == NULL) {
        return NGX_ERROR;
    }

    last = ngx_rl_token_refused(ctx)
           ? ngx_cpymem(p, NGX_RL_MESSAGE_TOKEN,
                        sizeof(NGX_RL_MESSAGE_TOKEN) - 1)
           : ctx->penalized
           ? ngx_cpymem(p, NGX_RL_MESSAGE_PENALIZED,
                        sizeof(NGX_RL_MESSAGE_PENALIZED) - 1)
           : ngx_rl_message(p, ctx);

    status = ngx_rl_token_refused(ctx) ? &unauthenticated
             : (ctx->check.status == NGX_RL_DENIED) ? &denied
             : (ctx->check.status == NGX_RL_UNAVAILABLE)
             ? &unavailable : &exhausted;

    if (ngx_rl_add_header(r, &status_name, status->data, status->len) == NULL
        || ngx_rl_add_header(r, &message_name, p, last - p) == NULL)
    {
        return NGX_ERROR;
    }

    ngx_http_clear_content_length(r);

    /* HTTP/1 has no other way to say that the answer ends here */

    if (r->http_version < NGX_HTTP_VERSION_20) {
        r->headers_out.content_length_n = 0;
    }

    r->headers_out.status = NGX_HTTP_OK;
    ngx_str_set(&r->headers_out.content_type, "application/grpc");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;

    /* what ends the stream with its headers */
    r->header_only = 1;

    return ngx_http_send_header(r);
}


static ngx_int_t
ngx_rl_send_body(ngx_http_request_t *r, ngx_rl_ctx_t *ctx, ngx_uint_t status)
{
    ngx_http_complex_value_t  cv;

    static ngx_str_t  json = ngx_string("application/json");
    static ngx_str_t  problem = ngx_string("application/problem+json");

    ngx_memzero(&cv, sizeof(ngx_http_complex_value_t));

    if (ngx_rl_body(r, ctx, &cv.value) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_send_response(r, status,
        (ctx->conf->response == NGX_RL_RESPONSE_PROBLEM) ? &problem : &json,
        &cv);
}


/*
 * Finalizes by itself and so answers whatever the status: returned to the
 * phase, a 401 or 403 would be no more than a vote under "satisfy any".
 */
ngx_int_t
ngx_rl_reject(ngx_http_request_t *r, ngx_rl_ctx_t *ctx)
{
    ngx_int_t   rc;
    ngx_uint_t  status;

    status = ngx_rl_refused_status(ctx);
    r->err_status = 0;

    /* a client that waits for "100 Continue" need not send its body */
    r->expect_tested = 1;

    if (ctx->conf->close_after && ctx->check.status == NGX_RL_REJECTED) {
        ngx_rl_close_after(r, ctx->conf->close_after);
    }

    if (ctx->penalized
        && ctx->penalized->penalty->action == NGX_RL_PENALTY_CLOSE)
    {
        ngx_rl_close_after(r, 1);
    }

    if (ngx_rl_token_refused(ctx) && ngx_rl_challenge(r) != NGX_OK) {
        rc = NGX_HTTP_INTERNAL_SERVER_ERROR;

    } else if (status == NGX_HTTP_CLOSE
               || ctx->conf->response == NGX_RL_RESPONSE_OFF
               || ngx_rl_has_error_page(r, status))
    {
        rc = status;

    } else if (ngx_rl_is_grpc(r)) {
        rc = ngx_rl_send_grpc(r, ctx);

    } else {
        rc = ngx_rl_send_body(r, ctx, status);
    }

    ngx_http_finalize_request(r, rc);

    return NGX_DONE;
}
