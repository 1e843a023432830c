/*
 * "/explain": what its two files share. The request to the endpoint becomes the
 * one that it asks about, runs through nginx's phases up to the place where it
 * would be checked, and becomes itself again.
 */

#ifndef NGX_HTTP_RATELIMIT_API_EXPLAIN_H_INCLUDED
#define NGX_HTTP_RATELIMIT_API_EXPLAIN_H_INCLUDED

#include "ngx_http_ratelimit_api.h"

/* What of a request is another's meanwhile. */
typedef struct {
    ngx_uint_t                  method;
    ngx_str_t                   method_name;
    ngx_str_t                   request_line;
    ngx_str_t                   uri;
    ngx_str_t                   args;
    ngx_str_t                   exten;
    ngx_str_t                   unparsed_uri;
    ngx_http_headers_in_t       headers_in;
    void                      **srv_conf;
    void                      **loc_conf;
    ngx_http_variable_value_t  *variables;
    ngx_http_request_body_t    *request_body;
    struct sockaddr            *sockaddr;   /* the connection's, which */
    socklen_t                   socklen;    /* set_real_ip_from may change, */
    ngx_str_t                   addr_text;  /* too */
    unsigned                    internal:1;
    unsigned                    valid_unparsed_uri:1;
} ngx_http_ratelimit_api_self_t;

/* Copies what become() changes; becomes it again. */
void ngx_http_ratelimit_api_self_save(ngx_http_request_t *r,
    ngx_http_ratelimit_api_self_t *self);
ngx_int_t ngx_http_ratelimit_api_self_restore(ngx_http_request_t *r,
    ngx_http_ratelimit_api_self_t *self);

/*
 * The client's address alone: the connection outlives the request, and would
 * take another's to the next.
 */
void ngx_http_ratelimit_api_self_address(ngx_http_request_t *r,
    ngx_http_ratelimit_api_self_t *self);

/*
 * Makes the request the one that the question describes: {"address", "method",
 * "uri", "host", "port", "headers"}. Returns NGX_OK, NGX_DECLINED: there are
 * problems, or NGX_ERROR: memory is out. In each case it has to be restored.
 */
ngx_int_t ngx_http_ratelimit_api_become(ngx_http_request_t *r,
    struct json_t *question, ngx_ratelimit_problems_t *problems);

/*
 * The server of that name: at the address that the endpoint was asked at, or
 * another that nginx listens at, where it has one of that name. Else the one
 * that all other names are for. port: 0 for any. NULL: it listens at none.
 */
ngx_http_core_srv_conf_t *ngx_http_ratelimit_api_server(
    ngx_http_request_t *r, ngx_str_t *host, in_port_t port);

#endif /* NGX_HTTP_RATELIMIT_API_EXPLAIN_H_INCLUDED */
