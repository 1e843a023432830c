/*
 * Reads a file of tokens, and finds a client's token among them.
 */

#include "ngx_rl_token.h"

#include "ngx_rl_conf.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#define NGX_RL_TOKEN_FILE   65536   /* bytes of the file */
#define NGX_RL_TOKEN_BYTES  16      /* of a token at least */
#define NGX_RL_TOKEN_NAME   64      /* bytes of a name at most */

/* the directive that is read */
#define ngx_rl_directive(cf)  ((ngx_str_t *) (cf)->args->elts)


/* "<name>:<token>"; a token without a colon has no name. */
static ngx_int_t
ngx_rl_token_parse(ngx_conf_t *cf, ngx_array_t *tokens, const u_char *text,
    size_t len)
{
    size_t           i, n;
    ngx_str_t        name;
    const u_char    *token;
    ngx_rl_token_t  *one;

    token = memchr(text, ':', len);
    n = token ? (size_t) (token - text) : 0;

    if (token && (n == 0 || n > NGX_RL_TOKEN_NAME)) {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        if ((text[i] < '0' || text[i] > '9')
            && ((text[i] | 0x20) < 'a' || (text[i] | 0x20) > 'z')
            && memchr("._@+-", text[i], sizeof("._@+-") - 1) == NULL)
        {
            return NGX_ERROR;
        }
    }

    token = token ? token + 1 : text;
    len -= token - text;

    if (len < NGX_RL_TOKEN_BYTES) {
        return NGX_ERROR;
    }

    for (i = 0; i < len; i++) {
        if (token[i] <= 0x20 || token[i] >= 0x7f) {
            return NGX_ERROR;
        }
    }

    one = ngx_array_push(tokens);
    name.data = (u_char *) text;
    name.len = n;

    if (one == NULL) {
        return NGX_ERROR;
    }

    (void) SHA256(token, len, one->digest);

    one->name.len = n;
    one->name.data = ngx_pstrdup(cf->pool, &name);

    return (one->name.data || n == 0) ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_rl_tokens_parse(ngx_conf_t *cf, ngx_array_t *tokens, const ngx_str_t *file,
    const ngx_str_t *content)
{
    u_char      *p, *end, *last, *next;
    ngx_uint_t   line;

    if (content->len > NGX_RL_TOKEN_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" has an invalid file \"%V\", expected at "
                           "most %d bytes", ngx_rl_directive(cf),
                           file, NGX_RL_TOKEN_FILE);
        return NGX_ERROR;
    }

    end = content->data + content->len;

    for (p = content->data, line = 1; p < end; p = next, line++) {

        last = ngx_strlchr(p, end, '\n');
        last = last ? last : end;
        next = last + 1;

        while (last > p && (last[-1] == ' ' || last[-1] == '\t'
                            || last[-1] == '\r'))
        {
            last--;
        }

        while (p < last && (*p == ' ' || *p == '\t')) {
            p++;
        }

        if (p == last || *p == '#') {
            continue;
        }

        /* the message does not show the line: it holds a secret */

        if (ngx_rl_token_parse(cf, tokens, p, last - p) != NGX_OK) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%V\" has an invalid token in %V:%ui, "
                               "expected \"<name>:<token>\": a name of "
                               "letters, digits and \"._@+-\", a token of %d "
                               "bytes or more without spaces",
                               ngx_rl_directive(cf), file, line,
                               NGX_RL_TOKEN_BYTES);
            return NGX_ERROR;
        }
    }

    if (tokens->nelts == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" has an invalid file \"%V\", expected a "
                           "token", ngx_rl_directive(cf), file);
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_array_t *
ngx_rl_tokens_read(ngx_conf_t *cf, ngx_str_t *file)
{
    ngx_int_t     rc;
    ngx_str_t     content;
    ngx_array_t  *tokens;

    tokens = ngx_array_create(cf->pool, 2, sizeof(ngx_rl_token_t));
    if (tokens == NULL) {
        return NULL;
    }

    if (ngx_rl_file_read(cf, file, NGX_RL_TOKEN_FILE, &content) != NGX_OK) {
        return NULL;
    }

    rc = ngx_rl_tokens_parse(cf, tokens, file, &content);

    ngx_rl_file_free(&content);

    return (rc == NGX_OK) ? tokens : NULL;
}


const ngx_rl_token_t *
ngx_rl_token_find(const ngx_array_t *tokens, const u_char *text, size_t len)
{
    u_char                 digest[NGX_RL_TOKEN_DIGEST];
    ngx_uint_t             i;
    const ngx_rl_token_t  *token, *found;

    (void) SHA256(text, len, digest);

    token = tokens->elts;
    found = NULL;

    for (i = 0; i < tokens->nelts; i++) {
        if (CRYPTO_memcmp(token[i].digest, digest, NGX_RL_TOKEN_DIGEST) == 0) {
            found = &token[i];
        }
    }

    return found;
}
