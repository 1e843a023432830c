/*
 * The guard of the endpoint and of the metrics. It lets in a client with a
 * token of a file, or with a certificate that the server has verified. If a
 * location has neither, it lets in clients on the gateway's machine.
 */

#ifndef NGX_RL_GUARD_H_INCLUDED
#define NGX_RL_GUARD_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#define NGX_RL_GUARD_CHALLENGE  "Bearer realm=\"ratelimit\""

#define NGX_RL_TOKEN_DIGEST  32

/*
 * A line of a file of tokens: a client that may use the endpoint, or ask for an
 * explanation. The token itself is not kept.
 */
typedef struct {
    u_char      digest[NGX_RL_TOKEN_DIGEST];
    ngx_str_t   name;      /* of the client; may be empty */
    ngx_uint_t  checks;    /* it may only check */
} ngx_rl_token_t;

/* A location's, in the configuration's pool. */
typedef struct {
    ngx_array_t  *tokens;       /* ngx_rl_token_t; NULL: none */
    ngx_array_t  *names;        /* ngx_str_t: of the server, that nobody else
                                   may define */
    unsigned      verifies:1;   /* the server asks for certificates */
} ngx_rl_guard_t;


/*
 * The token that text is, or NULL. All of them are compared, by their digests:
 * the time that this takes tells nothing about them.
 */
const ngx_rl_token_t *ngx_rl_token_find(const ngx_array_t *tokens,
    const u_char *text, size_t len);

/* For a merged location. Returns NGX_OK, or NGX_ERROR: memory is out. */
ngx_int_t ngx_rl_guard_merge(ngx_conf_t *cf, ngx_rl_guard_t *guard);

/* why a client whose token may only check is forbidden what is no check */
extern const char  ngx_rl_guard_checks[];

/*
 * Looks at a request. NGX_OK: it has a token, whose name is set, or a verified
 * certificate. NGX_DECLINED: it comes from this machine, and may read.
 * NGX_HTTP_UNAUTHORIZED or NGX_HTTP_FORBIDDEN, with a text for the client: if
 * that is ngx_rl_guard_checks, the name is set, too.
 */
ngx_int_t ngx_rl_guard(ngx_http_request_t *r, const ngx_rl_guard_t *guard,
    ngx_str_t *name, const char **why);

/* Whether an address is of this machine: loopback, or a UNIX socket. */
ngx_uint_t ngx_rl_guard_loopback(struct sockaddr *sa);

/* The same of a name, for which no name server is needed. */
ngx_uint_t ngx_rl_guard_localhost(const ngx_str_t *host);

/*
 * Logs that the request is refused, once a second, without its path and its
 * query: they may hold a key.
 */
void ngx_rl_guard_log(ngx_http_request_t *r, const char *why);

#endif /* NGX_RL_GUARD_H_INCLUDED */
