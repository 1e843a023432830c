/*
 * "ratelimit_once" at a request: what makes it the same one as another.
 */

#include "ngx_rl_request.h"


/*
 * Its method, host and line, as the client has sent it, and its idempotency
 * key: so one that was paid frees no other. No part but the last has a zero
 * byte. Without memory it is no replay, and has none.
 */
void
ngx_rl_request_once_begin(ngx_http_request_t *r, ngx_rl_ctx_t *ctx,
    ngx_uint_t use)
{
    u_char         *p;
    size_t          len;
    ngx_str_t       key;
    ngx_rl_once_t  *once;

    const ngx_rl_once_conf_t  *conf;

    conf = ctx->conf->once;
    once = NULL;

    if (ngx_rl_value_get(r, conf->key, &key) == NGX_OK && key.len) {
        len = sizeof(ngx_rl_id_t) + r->method_name.len
              + r->headers_in.server.len + r->unparsed_uri.len + key.len
              + 3 * sizeof("");
        once = ngx_palloc(r->pool, sizeof(ngx_rl_once_t) + len);
    }

    if (once == NULL) {
        ctx->needs &= ~NGX_RL_NEEDS_ONCE;
        return;
    }

    once->time_us = (uint64_t) conf->time * 1000000;
    once->text = (u_char *) &once[1];

    p = ngx_sprintf(once->text + sizeof(ngx_rl_id_t),
                    "%V%Z%V%Z%V%Z%V", &r->method_name, &r->headers_in.server,
                    &r->unparsed_uri, &key);
    once->len = p - once->text;

    ctx->once = once;

    ngx_rl_once_begin(&ctx->check, once, use);
}
