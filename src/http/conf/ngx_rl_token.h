/*
 * A file of tokens: the clients that may use the endpoint, or ask for an
 * explanation.
 */

#ifndef NGX_RL_TOKEN_H_INCLUDED
#define NGX_RL_TOKEN_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#define NGX_RL_TOKEN_DIGEST  32

/* The token itself is not kept. */
typedef struct {
    u_char      digest[NGX_RL_TOKEN_DIGEST];
    ngx_str_t   name;      /* of the client; may be empty */
} ngx_rl_token_t;


/*
 * Reads the file that a directive names: an array of tokens, with one or more.
 * NULL: the file is wrong, or memory is out; it is logged, with the directive.
 */
ngx_array_t *ngx_rl_tokens_read(ngx_conf_t *cf, ngx_str_t *file);

/*
 * The token that text is, or NULL. All of them are compared, by their digests:
 * the time that this takes tells nothing about them.
 */
const ngx_rl_token_t *ngx_rl_token_find(
    const ngx_array_t *tokens, const u_char *text, size_t len);

#endif /* NGX_RL_TOKEN_H_INCLUDED */
