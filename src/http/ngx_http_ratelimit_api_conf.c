/*
 * "ratelimit_api": the directive, its file of tokens, and what only the whole
 * configuration tells.
 */

#include "ngx_http_ratelimit_api.h"

#include <openssl/sha.h>

#define NGX_HTTP_RATELIMIT_API_FILE   65536   /* bytes of a file of tokens */
#define NGX_HTTP_RATELIMIT_API_TOKEN  16      /* bytes of a token at least */
#define NGX_HTTP_RATELIMIT_API_NAME   64      /* of its name at most */

/*
 * A body that is too large for the endpoint shall be refused by it, with a
 * problem: nginx's own check comes first, and has to let it pass. It is not
 * read, or no further than that.
 */
#define NGX_HTTP_RATELIMIT_API_MAX_BODY  ((off_t) 1024 * 1024 * 1024)

static ngx_int_t ngx_http_ratelimit_api_names(ngx_conf_t *cf,
    ngx_http_ratelimit_api_conf_t *api);
static ngx_int_t ngx_http_ratelimit_api_parameters(ngx_conf_t *cf,
    ngx_http_ratelimit_api_conf_t *api);
static ngx_int_t ngx_http_ratelimit_api_location(ngx_conf_t *cf,
    ngx_http_core_loc_conf_t *clcf);
static ngx_int_t ngx_http_ratelimit_api_tokens(ngx_conf_t *cf,
    ngx_http_ratelimit_api_conf_t *api, ngx_str_t *name);
static ngx_int_t ngx_http_ratelimit_api_tokens_read(ngx_conf_t *cf,
    ngx_str_t *name, ngx_str_t *content);
static ngx_int_t ngx_http_ratelimit_api_tokens_parse(ngx_conf_t *cf,
    ngx_http_ratelimit_api_conf_t *api, const ngx_str_t *name,
    const ngx_str_t *content);
static ngx_int_t ngx_http_ratelimit_api_token(ngx_conf_t *cf,
    ngx_http_ratelimit_api_conf_t *api, const u_char *text, size_t len);


/* ratelimit_api zone=<name> [write] [token_file=<file>] [author=<value>] */
char *
ngx_http_ratelimit_api(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_ratelimit_loc_conf_t *rlcf = conf;

    ngx_http_core_loc_conf_t        *clcf;
    ngx_http_ratelimit_api_conf_t   *api, **entry;
    ngx_http_ratelimit_main_conf_t  *rmcf;

    if (rlcf->api || rlcf->exempt) {
        return rlcf->api ? "is duplicate"
                         : "stands beside \"ratelimit_metrics\"";
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (ngx_http_ratelimit_api_location(cf, clcf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    api = ngx_pcalloc(cf->pool, sizeof(ngx_http_ratelimit_api_conf_t));
    if (api == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_http_ratelimit_place(cf, &api->place);

    if (ngx_http_ratelimit_api_parameters(cf, api) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    rmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_ratelimit_module);

    entry = ngx_array_push(&rmcf->apis);
    if (entry == NULL) {
        return NGX_CONF_ERROR;
    }

    *entry = api;

    rlcf->api = api;
    rlcf->exempt = 1;

    clcf->handler = ngx_http_ratelimit_api_handler;

    return NGX_CONF_OK;
}


/* The paths of the endpoint are what stands below the location's name. */
static ngx_int_t
ngx_http_ratelimit_api_location(ngx_conf_t *cf,
    ngx_http_core_loc_conf_t *clcf)
{
    const char  *what;

    what = NULL;

#if (NGX_PCRE)
    if (clcf->regex) {
        what = "a regular expression";
    }
#endif

    if (clcf->named) {
        what = "a name";
    }

    if (clcf->exact_match) {
        what = "\"=\"";
    }

    if (what) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_api\" is in a location with %s, "
                           "expected a prefix: \"location /ratelimit/\"",
                           what);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_ratelimit_api_parameters(ngx_conf_t *cf,
    ngx_http_ratelimit_api_conf_t *api)
{
    ngx_str_t  *value, text;
    ngx_uint_t  i;

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        if (api->zone.len == 0
            && ngx_http_ratelimit_parameter(&value[i], "zone=", &text)
            && text.len)
        {
            api->zone = text;
            continue;
        }

        if (!api->write && ngx_strcmp(value[i].data, "write") == 0) {
            api->write = 1;
            continue;
        }

        if (api->tokens == NULL
            && ngx_http_ratelimit_parameter(&value[i], "token_file=", &text)
            && text.len)
        {
            if (ngx_http_ratelimit_api_tokens(cf, api, &text) != NGX_OK) {
                return NGX_ERROR;
            }

            continue;
        }

        if (api->author == NULL
            && ngx_http_ratelimit_parameter(&value[i], "author=", &text)
            && text.len)
        {
            api->author = ngx_palloc(cf->pool,
                                     sizeof(ngx_http_ratelimit_value_t));

            if (api->author == NULL
                || ngx_http_ratelimit_value_compile(cf, &text, api->author)
                   != NGX_OK)
            {
                return NGX_ERROR;
            }

            continue;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_api\" has an invalid parameter "
                           "\"%V\", expected \"zone=<name> [write] "
                           "[token_file=<file>] [author=<value>]\"",
                           &value[i]);
        return NGX_ERROR;
    }

    if (api->zone.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_api\" has no zone, "
                           "expected \"zone=<name>\"");
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* What is kept of the file are digests; nothing of it gets into a message. */
static ngx_int_t
ngx_http_ratelimit_api_tokens(ngx_conf_t *cf,
    ngx_http_ratelimit_api_conf_t *api, ngx_str_t *name)
{
    ngx_int_t  rc;
    ngx_str_t  content;

    if (ngx_conf_full_name(cf->cycle, name, 1) != NGX_OK) {
        return NGX_ERROR;
    }

    api->tokens = ngx_array_create(cf->pool, 2,
                                   sizeof(ngx_http_ratelimit_api_token_t));
    if (api->tokens == NULL) {
        return NGX_ERROR;
    }

    if (ngx_http_ratelimit_api_tokens_read(cf, name, &content) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_http_ratelimit_api_tokens_parse(cf, api, name, &content);

    ngx_explicit_memzero(content.data, content.len);
    ngx_free(content.data);

    return rc;
}


/* The whole file, on the heap; of one that is too long a byte more. */
static ngx_int_t
ngx_http_ratelimit_api_tokens_read(ngx_conf_t *cf, ngx_str_t *name,
    ngx_str_t *content)
{
    ssize_t   n;
    ngx_fd_t  fd;

    fd = ngx_open_file(name->data, NGX_FILE_RDONLY, NGX_FILE_OPEN, 0);

    if (fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_open_file_n " \"%V\" failed in "
                           "\"ratelimit_api\"", name);
        return NGX_ERROR;
    }

    content->data = ngx_alloc(NGX_HTTP_RATELIMIT_API_FILE + 1, cf->log);
    n = -1;

    if (content->data) {
        n = ngx_read_fd(fd, content->data, NGX_HTTP_RATELIMIT_API_FILE + 1);

        if (n == -1) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                               ngx_read_fd_n " \"%V\" failed in "
                               "\"ratelimit_api\"", name);
        }
    }

    if (ngx_close_file(fd) == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_ALERT, cf, ngx_errno,
                           ngx_close_file_n " \"%V\" failed", name);
    }

    if (n == -1) {
        if (content->data) {
            ngx_free(content->data);
        }

        return NGX_ERROR;
    }

    content->len = n;

    return NGX_OK;
}


static ngx_int_t
ngx_http_ratelimit_api_tokens_parse(ngx_conf_t *cf,
    ngx_http_ratelimit_api_conf_t *api, const ngx_str_t *name,
    const ngx_str_t *content)
{
    u_char      *p, *end, *last, *next;
    ngx_uint_t   line;

    if (content->len > NGX_HTTP_RATELIMIT_API_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_api\" has an invalid file \"%V\", "
                           "expected at most %d bytes", name,
                           NGX_HTTP_RATELIMIT_API_FILE);
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

        if (ngx_http_ratelimit_api_token(cf, api, p, last - p) != NGX_OK) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"ratelimit_api\" has an invalid token in "
                               "%V:%ui, expected \"<name>:<token>\": a name "
                               "of letters, digits and \"._@+-\", a token of "
                               "%d bytes or more without spaces", name, line,
                               NGX_HTTP_RATELIMIT_API_TOKEN);
            return NGX_ERROR;
        }
    }

    if (api->tokens->nelts == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_api\" has an invalid file \"%V\", "
                           "expected a token", name);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* "<name>:<token>"; or a token alone, without a colon, which has no name. */
static ngx_int_t
ngx_http_ratelimit_api_token(ngx_conf_t *cf,
    ngx_http_ratelimit_api_conf_t *api, const u_char *text, size_t len)
{
    size_t                           i, n;
    const u_char                    *token;
    ngx_http_ratelimit_api_token_t  *one;

    token = memchr(text, ':', len);
    n = token ? (size_t) (token - text) : 0;

    if (token && (n == 0 || n > NGX_HTTP_RATELIMIT_API_NAME)) {
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

    if (len < NGX_HTTP_RATELIMIT_API_TOKEN) {
        return NGX_ERROR;
    }

    for (i = 0; i < len; i++) {
        if (token[i] <= 0x20 || token[i] >= 0x7f) {
            return NGX_ERROR;
        }
    }

    one = ngx_array_push(api->tokens);
    if (one == NULL) {
        return NGX_ERROR;
    }

    (void) SHA256(token, len, one->digest);

    one->name.len = n;
    one->name.data = ngx_pnalloc(cf->pool, n + 1);

    if (one->name.data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(one->name.data, text, n);

    return NGX_OK;
}


/*
 * Before limits are inherited. A location inside of another one is not the
 * endpoint. But what "if" and "limit_except" make has its name, and is: with
 * the rights that stand there.
 */
char *
ngx_http_ratelimit_api_merge(ngx_conf_t *cf,
    ngx_http_ratelimit_loc_conf_t *prev, ngx_http_ratelimit_loc_conf_t *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (prev->api && clcf->noname && clcf->handler == NULL) {
        conf->api = prev->api;
        conf->exempt = (conf->limits == NULL) ? prev->exempt : 0;
        clcf->handler = ngx_http_ratelimit_api_handler;
    }

    if (conf->api == NULL) {
        return NGX_CONF_OK;
    }

    clcf->client_max_body_size = NGX_HTTP_RATELIMIT_API_MAX_BODY;

    return ngx_http_ratelimit_api_names(cf, conf->api) == NGX_OK
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}


/* nginx's own list ends with the reading of the configuration. */
static ngx_int_t
ngx_http_ratelimit_api_names(ngx_conf_t *cf,
    ngx_http_ratelimit_api_conf_t *api)
{
    ngx_str_t                 *name;
    ngx_uint_t                 i;
    ngx_http_server_name_t    *names;
    ngx_http_core_srv_conf_t  *cscf;

    cscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    names = cscf->server_names.elts;

    api->names = ngx_array_create(cf->pool, cscf->server_names.nelts + 1,
                                  sizeof(ngx_str_t));
    if (api->names == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < cscf->server_names.nelts; i++) {

        if (names[i].name.len == 0) {
            continue;
        }

#if (NGX_PCRE)
        if (names[i].regex) {
            continue;
        }
#endif

        name = ngx_array_push(api->names);
        if (name == NULL) {
            return NGX_ERROR;
        }

        *name = names[i].name;
    }

    return NGX_OK;
}


/* Which zones follow a document, and where nginx keeps "allow" and "deny". */
ngx_int_t
ngx_http_ratelimit_api_resolve(ngx_conf_t *cf,
    ngx_http_ratelimit_main_conf_t *conf)
{
    ngx_uint_t                       i;
    ngx_http_ratelimit_hint_t        hint;
    ngx_http_ratelimit_zone_t       *zone;
    ngx_http_ratelimit_api_conf_t  **apis;

    apis = conf->apis.elts;

    for (i = 0; i < conf->apis.nelts; i++) {

        zone = ngx_http_ratelimit_zone_by_name(conf, &apis[i]->zone);

        if (zone == NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "\"ratelimit_api\" has an unknown \"zone=%V\", "
                          "%V in %V:%ui", &apis[i]->zone,
                          ngx_http_ratelimit_hint_zones(&hint, conf,
                                                        &apis[i]->zone),
                          &apis[i]->place.file, apis[i]->place.line);
            return NGX_ERROR;
        }

        apis[i]->limiter = &zone->limiter;
        zone->limiter.follows = 1;
        zone->used = 1;
    }

    conf->access = NGX_CONF_UNSET_UINT;

    for (i = 0; cf->cycle->modules[i]; i++) {
        if (ngx_strcmp(cf->cycle->modules[i]->name, "ngx_http_access_module")
            == 0)
        {
            conf->access = cf->cycle->modules[i]->ctx_index;
        }
    }

    return NGX_OK;
}
