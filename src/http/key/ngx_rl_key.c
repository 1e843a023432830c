/*
 * $ratelimit_api_key: the value of the first configured source that has one. A
 * value that is too long or no text is replaced by its hash.
 */

#include "ngx_rl_key.h"
#include "ngx_rl_conf.h"

#include <openssl/evp.h>

#define NGX_RL_KEY_BYTES  256
#define NGX_RL_KEY_HASH   "sha256:"


/* ratelimit_api_key <source> ... */
char *
ngx_rl_api_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_loc_conf_t *rlcf = conf;

    ngx_str_t        *value;
    ngx_uint_t        i, verified;
    ngx_rl_source_t  *source;

    if (rlcf->sources != NULL) {
        return "is duplicate";
    }

    rlcf->sources = ngx_array_create(cf->pool, cf->args->nelts - 1,
                                     sizeof(ngx_rl_source_t));
    if (rlcf->sources == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;
    verified = 0;

    for (i = 1; i < cf->args->nelts; i++) {
        source = ngx_array_push(rlcf->sources);
        if (source == NULL) {
            return NGX_CONF_ERROR;
        }

        if (ngx_rl_source_parse(&value[i], source) != NGX_OK) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"ratelimit_api_key\" has an invalid source "
                               "\"%V\", expected \"header:<name>\", "
                               "\"bearer\", \"basic\", \"query:<name>\", "
                               "\"cookie:<name>\" or \"jwt:<claim>\"",
                               &value[i]);
            return NGX_CONF_ERROR;
        }

        ngx_rl_place(cf, &source->place);

        if (verified) {
            ngx_rl_source_verify(source);
        }

        verified |= source->jwt;
    }

    return NGX_CONF_OK;
}


char *
ngx_rl_api_key_check(ngx_conf_t *cf, ngx_rl_loc_conf_t *prev,
    ngx_rl_loc_conf_t *conf)
{
    ngx_str_t                 *name;
    ngx_uint_t                 i;
    ngx_http_core_loc_conf_t  *clcf;
    ngx_http_core_srv_conf_t  *cscf;
    ngx_rl_source_t           *source;

    if (conf->jwt_key) {
        return NGX_CONF_OK;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    cscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);

    /* what limits nothing may leave the key to the locations inside it */

    if ((conf->limits == NULL || conf->limits->nelts == 0)
        && (clcf->name.len == 0 || conf->sources == prev->sources))
    {
        return NGX_CONF_OK;
    }

    name = clcf->name.len ? &clcf->name : &cscf->server_name;
    source = conf->sources->elts;

    for (i = 0; i < conf->sources->nelts; i++) {
        if (source[i].jwt) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "\"ratelimit_api_key\" has \"jwt:%V\" and %s \"%V\" "
                          "has no key, expected a \"ratelimit_jwt_key\" in "
                          "%V:%ui", &source[i].name,
                          clcf->name.len ? "location" : "server", name,
                          &source[i].place.file, source[i].place.line);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_rl_api_key_mark(ngx_http_request_t *r, const char *mark, ngx_str_t *key)
{
    ngx_uint_t  i;

    static const char  *marks[] = {
        NGX_RL_MARK_JWT, NGX_RL_MARK_BASIC,
        NGX_RL_MARK_TOKEN, NGX_RL_MARK_ADDRESS,
        NGX_RL_MARK_PLAIN
    };

    for (i = 0; mark == NULL && i < sizeof(marks) / sizeof(marks[0]); i++) {
        if (ngx_rl_key_begins(key, marks[i])) {
            mark = NGX_RL_MARK_PLAIN;
        }
    }

    return mark ? ngx_rl_key_marked(r, mark, key) : NGX_OK;
}


/*
 * Whether a key may stand as it is: short, without control characters, and not
 * what another key's hash looks like, which is no secret.
 */
static ngx_uint_t
ngx_rl_api_key_plain(const ngx_str_t *key)
{
    size_t  i;

    if (key->len > NGX_RL_KEY_BYTES) {
        return 0;
    }

    if (key->len >= sizeof(NGX_RL_KEY_HASH) - 1
        && ngx_strncmp(key->data, NGX_RL_KEY_HASH, sizeof(NGX_RL_KEY_HASH) - 1)
           == 0)
    {
        return 0;
    }

    for (i = 0; i < key->len; i++) {
        if (key->data[i] < 0x20 || key->data[i] == 0x7f) {
            return 0;
        }
    }

    return 1;
}


/* Another one for another key, of a length and of bytes that fit a log. */
static ngx_int_t
ngx_rl_key_hash(ngx_http_request_t *r, ngx_str_t *key)
{
    u_char        digest[EVP_MAX_MD_SIZE], *p, *last;
    unsigned int  len;

    if (EVP_Digest(key->data, key->len, digest, &len, EVP_sha256(), NULL) != 1)
    {
        return NGX_ERROR;
    }

    p = ngx_pnalloc(r->pool, sizeof(NGX_RL_KEY_HASH) - 1 + 2 * len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    last = ngx_cpymem(p, NGX_RL_KEY_HASH, sizeof(NGX_RL_KEY_HASH) - 1);

    key->data = p;
    key->len = ngx_hex_dump(last, digest, len) - p;

    return NGX_OK;
}


ngx_int_t
ngx_rl_api_key_text(ngx_http_request_t *r, ngx_str_t *key)
{
    ngx_int_t               rc;
    ngx_uint_t              i;
    ngx_rl_loc_conf_t      *conf;
    const ngx_rl_source_t  *source;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_ratelimit_module);
    source = conf->sources->elts;
    rc = NGX_DECLINED;

    for (i = 0; i < conf->sources->nelts && rc == NGX_DECLINED; i++) {
        rc = source[i].get(r, &source[i], key);
    }

    if (rc == NGX_OK) {
        rc = ngx_rl_api_key_mark(r, source[i - 1].mark, key);
    }

    if (rc != NGX_OK || ngx_rl_api_key_plain(key)) {
        return rc;
    }

    return ngx_rl_key_hash(r, key);
}


ngx_int_t
ngx_rl_api_key_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
    uintptr_t data)
{
    ngx_int_t  rc;
    ngx_str_t  key;

    rc = ngx_rl_api_key_text(r, &key);

    if (rc == NGX_DECLINED) {
        v->not_found = 1;
        return NGX_OK;
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_rl_variable_set(v, key.data, key.len);
}


ngx_int_t
ngx_rl_key_name(ngx_http_request_t *r, const ngx_str_t *written, ngx_str_t *key)
{
    ngx_uint_t  hashed;

    hashed = written ? ngx_rl_policy_value_hashed(written, key)
                     : ngx_rl_policy_hashed(key);

    return hashed ? NGX_OK : ngx_rl_key_hash(r, key);
}
