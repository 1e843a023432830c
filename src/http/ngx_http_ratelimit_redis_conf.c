/*
 * The "ratelimit_redis" block: where Redis is and how to speak to it.
 */

#include "ngx_http_ratelimit_redis_conf.h"

#include "ngx_ratelimit_text.h"

#define NGX_HTTP_RATELIMIT_REDIS_BUCKETS      65536
#define NGX_HTTP_RATELIMIT_REDIS_MAX_BUCKETS  (1 << 20)
#define NGX_HTTP_RATELIMIT_REDIS_TIMEOUT      50
#define NGX_HTTP_RATELIMIT_REDIS_MAX_TIMEOUT  10000
#define NGX_HTTP_RATELIMIT_REDIS_MAX_DATABASE 2147483647

#define NGX_HTTP_RATELIMIT_REDIS_ONE                                          \
    "one \"server\", one \"cluster\" or one \"sentinel\""

typedef char *(*ngx_http_ratelimit_redis_pt)(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);

typedef struct {
    ngx_str_t                     name;
    ngx_http_ratelimit_redis_pt   set;
    ngx_uint_t                    many;   /* arguments, else one */
} ngx_http_ratelimit_redis_directive_t;

static char *ngx_http_ratelimit_redis_directive(ngx_conf_t *cf,
    ngx_command_t *dummy, void *conf);
static char *ngx_http_ratelimit_redis_check(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
static char *ngx_http_ratelimit_redis_server(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
static char *ngx_http_ratelimit_redis_cluster(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
static char *ngx_http_ratelimit_redis_sentinel(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
static char *ngx_http_ratelimit_redis_addrs(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis, ngx_uint_t first);
static char *ngx_http_ratelimit_redis_timeout(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
static char *ngx_http_ratelimit_redis_buckets(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
static char *ngx_http_ratelimit_redis_prefix(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
static char *ngx_http_ratelimit_redis_username(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
static char *ngx_http_ratelimit_redis_password_file(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
static char *ngx_http_ratelimit_redis_sentinel_username(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
static char *ngx_http_ratelimit_redis_sentinel_password_file(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
static char *ngx_http_ratelimit_redis_user(ngx_conf_t *cf, ngx_str_t *name);
static char *ngx_http_ratelimit_redis_secret_file(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
static char *ngx_http_ratelimit_redis_database(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
static char *ngx_http_ratelimit_redis_file(ngx_conf_t *cf, ngx_str_t *text,
    ngx_str_t *path);

static ngx_http_ratelimit_redis_directive_t
    ngx_http_ratelimit_redis_directives[] =
{
    { ngx_string("server"), ngx_http_ratelimit_redis_server, 0 },
    { ngx_string("cluster"), ngx_http_ratelimit_redis_cluster, 1 },
    { ngx_string("sentinel"), ngx_http_ratelimit_redis_sentinel, 1 },
    { ngx_string("sentinel_username"),
      ngx_http_ratelimit_redis_sentinel_username, 0 },
    { ngx_string("sentinel_password_file"),
      ngx_http_ratelimit_redis_sentinel_password_file, 0 },
    { ngx_string("timeout"), ngx_http_ratelimit_redis_timeout, 0 },
    { ngx_string("username"), ngx_http_ratelimit_redis_username, 0 },
    { ngx_string("password_file"),
      ngx_http_ratelimit_redis_password_file, 0 },
    { ngx_string("secret_file"), ngx_http_ratelimit_redis_secret_file, 0 },
    { ngx_string("prefix"), ngx_http_ratelimit_redis_prefix, 0 },
    { ngx_string("buckets"), ngx_http_ratelimit_redis_buckets, 0 },
    { ngx_string("database"), ngx_http_ratelimit_redis_database, 0 },
    { ngx_string("tls"), ngx_http_ratelimit_redis_tls, 0 },
    { ngx_string("tls_ca"), ngx_http_ratelimit_redis_tls_ca, 0 },
    { ngx_string("tls_name"), ngx_http_ratelimit_redis_tls_name, 0 },
    { ngx_string("tls_certificate"),
      ngx_http_ratelimit_redis_tls_certificate, 0 },
    { ngx_string("tls_certificate_key"),
      ngx_http_ratelimit_redis_tls_certificate_key, 0 },
    { ngx_null_string, NULL, 0 }
};


char *
ngx_http_ratelimit_redis(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_ratelimit_main_conf_t *rmcf = conf;

    char                    *rv;
    ngx_str_t               *value;
    ngx_uint_t               i;
    ngx_conf_t               save;
    ngx_ratelimit_redis_t   *redis, **entry;

    value = cf->args->elts;

    if (!ngx_ratelimit_name_valid(value[1].data, value[1].len)) {
        return ngx_http_ratelimit_redis_invalid(cf,
                     "1 to 64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\"");
    }

    entry = rmcf->redis.elts;

    for (i = 0; i < rmcf->redis.nelts; i++) {
        if (entry[i]->name.len == value[1].len
            && ngx_strncmp(entry[i]->name.data, value[1].data, value[1].len)
               == 0)
        {
            return ngx_http_ratelimit_redis_invalid(cf,
                                                    "one of each name");
        }
    }

    redis = ngx_pcalloc(cf->pool, sizeof(ngx_ratelimit_redis_t));
    if (redis == NULL) {
        return NGX_CONF_ERROR;
    }

    redis->name = value[1];
    redis->database = NGX_CONF_UNSET_UINT;
    redis->tls.on = NGX_CONF_UNSET;

    if (ngx_array_init(&redis->hosts, cf->pool, 4,
                       sizeof(ngx_ratelimit_redis_host_t))
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    save = *cf;
    cf->handler = ngx_http_ratelimit_redis_directive;
    cf->handler_conf = (char *) redis;

    rv = ngx_conf_parse(cf, NULL);

    *cf = save;

    if (rv != NGX_CONF_OK) {
        return rv;
    }

    rv = ngx_http_ratelimit_redis_check(cf, redis);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    if (ngx_ratelimit_redis_prepare(redis, cf->pool) != NGX_OK
        || ngx_ratelimit_redis_share(cf, redis, &ngx_http_ratelimit_module)
           != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    entry = ngx_array_push(&rmcf->redis);
    if (entry == NULL) {
        return NGX_CONF_ERROR;
    }

    *entry = redis;

    return NGX_CONF_OK;
}


/* One line of the block. */
static char *
ngx_http_ratelimit_redis_directive(ngx_conf_t *cf, ngx_command_t *dummy,
    void *conf)
{
    ngx_ratelimit_redis_t *redis = conf;

    ngx_str_t                             *value;
    ngx_http_ratelimit_redis_directive_t  *d;
    ngx_http_ratelimit_hint_t              hint;

    value = cf->args->elts;
    ngx_http_ratelimit_hint_init(&hint, &value[0]);

    for (d = ngx_http_ratelimit_redis_directives; d->name.len; d++) {

        if (value[0].len != d->name.len
            || ngx_strncmp(value[0].data, d->name.data, d->name.len) != 0)
        {
            ngx_http_ratelimit_hint_add(&hint, &d->name);
            continue;
        }

        if (cf->args->nelts < 2 || (cf->args->nelts > 2 && !d->many)) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid number of arguments in \"%V\" of "
                               "\"ratelimit_redis\" \"%V\", expected %s",
                               &value[0], &redis->name,
                               d->many ? "one or more" : "one");
            return NGX_CONF_ERROR;
        }

        return d->set(cf, redis);
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "unknown directive \"%V\" in \"ratelimit_redis\" "
                       "\"%V\", %V", &value[0], &redis->name,
                       ngx_http_ratelimit_hint_text(&hint, ""));

    return NGX_CONF_ERROR;
}


/* What the block as a whole must say; the defaults. */
static char *
ngx_http_ratelimit_redis_check(ngx_conf_t *cf, ngx_ratelimit_redis_t *redis)
{
    if (redis->hosts.nelts == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_redis\" \"%V\" has no address, "
                           "expected \"server\", \"cluster\" or "
                           "\"sentinel\"",
                           &redis->name);
        return NGX_CONF_ERROR;
    }

    if (redis->username.len && redis->password.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_redis\" \"%V\" has a \"username\", "
                           "expected a \"password_file\" with it",
                           &redis->name);
        return NGX_CONF_ERROR;
    }

    if (redis->mode != NGX_RATELIMIT_REDIS_SENTINEL
        && (redis->sentinel_username.len || redis->sentinel_password.len))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_redis\" \"%V\" has a user for "
                           "sentinels, expected \"sentinel\" with it",
                           &redis->name);
        return NGX_CONF_ERROR;
    }

    if (redis->sentinel_username.len && redis->sentinel_password.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_redis\" \"%V\" has a "
                           "\"sentinel_username\", expected a "
                           "\"sentinel_password_file\" with it",
                           &redis->name);
        return NGX_CONF_ERROR;
    }

    if (redis->mode == NGX_RATELIMIT_REDIS_CLUSTER
        && redis->database != NGX_CONF_UNSET_UINT)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_redis\" \"%V\" has a \"database\", "
                           "expected none with \"cluster\"", &redis->name);
        return NGX_CONF_ERROR;
    }

    if (redis->database == NGX_CONF_UNSET_UINT) {
        redis->database = 0;
    }

    if (redis->timeout == 0) {
        redis->timeout = NGX_HTTP_RATELIMIT_REDIS_TIMEOUT;
    }

    if (redis->buckets == 0) {
        redis->buckets = NGX_HTTP_RATELIMIT_REDIS_BUCKETS;
    }

    if (redis->prefix.len == 0) {
        ngx_str_set(&redis->prefix, "rl");
    }

    return ngx_http_ratelimit_redis_tls_check(cf, redis);
}


static char *
ngx_http_ratelimit_redis_server(ngx_conf_t *cf, ngx_ratelimit_redis_t *redis)
{
    ngx_str_t  *value;

    if (redis->hosts.nelts) {
        return ngx_http_ratelimit_redis_invalid(cf,
                                         NGX_HTTP_RATELIMIT_REDIS_ONE);
    }

    value = cf->args->elts;

    return ngx_http_ratelimit_redis_addr(cf, redis, &value[1]);
}


static char *
ngx_http_ratelimit_redis_cluster(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis)
{
    if (redis->hosts.nelts) {
        return ngx_http_ratelimit_redis_invalid(cf,
                                         NGX_HTTP_RATELIMIT_REDIS_ONE);
    }

    redis->mode = NGX_RATELIMIT_REDIS_CLUSTER;

    return ngx_http_ratelimit_redis_addrs(cf, redis, 1);
}


static char *
ngx_http_ratelimit_redis_sentinel(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    if (redis->hosts.nelts) {
        return ngx_http_ratelimit_redis_invalid(cf,
                                         NGX_HTTP_RATELIMIT_REDIS_ONE);
    }

    if (cf->args->nelts < 3) {
        return ngx_http_ratelimit_redis_invalid(cf,
                         "a master's name and one or more \"host:port\"");
    }

    if (!ngx_ratelimit_name_valid(value[1].data, value[1].len)) {
        return ngx_http_ratelimit_redis_invalid(cf,
                     "a master's name of 1 to 64 of A-Z, a-z, 0-9, \"_\", "
                     "\".\", \"-\"");
    }

    redis->mode = NGX_RATELIMIT_REDIS_SENTINEL;
    redis->master = value[1];

    return ngx_http_ratelimit_redis_addrs(cf, redis, 2);
}


/* The arguments from first on. */
static char *
ngx_http_ratelimit_redis_addrs(ngx_conf_t *cf, ngx_ratelimit_redis_t *redis,
    ngx_uint_t first)
{
    char        *rv;
    ngx_str_t   *value;
    ngx_uint_t   i;

    value = cf->args->elts;

    for (i = first; i < cf->args->nelts; i++) {
        rv = ngx_http_ratelimit_redis_addr(cf, redis, &value[i]);
        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_ratelimit_redis_timeout(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis)
{
    ngx_int_t   timeout;
    ngx_str_t  *value;

    if (redis->timeout) {
        return ngx_http_ratelimit_redis_duplicate(cf);
    }

    value = cf->args->elts;
    timeout = ngx_parse_time(&value[1], 0);

    if (timeout < 1 || timeout > NGX_HTTP_RATELIMIT_REDIS_MAX_TIMEOUT) {
        return ngx_http_ratelimit_redis_invalid(cf,
                     "a time from 1ms to 10s, as in \"50ms\": a number "
                     "alone is seconds");
    }

    redis->timeout = timeout;

    return NGX_CONF_OK;
}


static char *
ngx_http_ratelimit_redis_buckets(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis)
{
    uint64_t    n;
    ngx_str_t  *value;

    if (redis->buckets) {
        return ngx_http_ratelimit_redis_duplicate(cf);
    }

    value = cf->args->elts;

    if (ngx_ratelimit_number_parse(value[1].data, value[1].len, 1,
                                   NGX_HTTP_RATELIMIT_REDIS_MAX_BUCKETS, &n)
        != 0
        || (n & (n - 1)))
    {
        return ngx_http_ratelimit_redis_invalid(cf,
                                      "a power of two from 1 to 1048576");
    }

    redis->buckets = n;

    return NGX_CONF_OK;
}


static char *
ngx_http_ratelimit_redis_prefix(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis)
{
    ngx_str_t  *value;

    if (redis->prefix.len) {
        return ngx_http_ratelimit_redis_duplicate(cf);
    }

    value = cf->args->elts;

    if (!ngx_ratelimit_name_valid(value[1].data, value[1].len)) {
        return ngx_http_ratelimit_redis_invalid(cf,
                     "1 to 64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\"");
    }

    redis->prefix = value[1];

    return NGX_CONF_OK;
}


static char *
ngx_http_ratelimit_redis_username(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis)
{
    return ngx_http_ratelimit_redis_user(cf, &redis->username);
}


static char *
ngx_http_ratelimit_redis_sentinel_username(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis)
{
    return ngx_http_ratelimit_redis_user(cf, &redis->sentinel_username);
}


static char *
ngx_http_ratelimit_redis_user(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_str_t  *value;

    if (name->len) {
        return ngx_http_ratelimit_redis_duplicate(cf);
    }

    value = cf->args->elts;

    if (value[1].len == 0) {
        return ngx_http_ratelimit_redis_invalid(cf, "a name");
    }

    *name = value[1];

    return NGX_CONF_OK;
}


static char *
ngx_http_ratelimit_redis_password_file(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis)
{
    return redis->password.len
           ? ngx_http_ratelimit_redis_duplicate(cf)
           : ngx_http_ratelimit_redis_file(cf, &redis->password,
                                           &redis->password_file);
}


static char *
ngx_http_ratelimit_redis_sentinel_password_file(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis)
{
    return redis->sentinel_password.len
           ? ngx_http_ratelimit_redis_duplicate(cf)
           : ngx_http_ratelimit_redis_file(cf, &redis->sentinel_password,
                                           &redis->sentinel_password_file);
}


static char *
ngx_http_ratelimit_redis_secret_file(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis)
{
    return redis->secret.len
           ? ngx_http_ratelimit_redis_duplicate(cf)
           : ngx_http_ratelimit_redis_file(cf, &redis->secret, NULL);
}


static char *
ngx_http_ratelimit_redis_database(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis)
{
    uint64_t    n;
    ngx_str_t  *value;

    if (redis->database != NGX_CONF_UNSET_UINT) {
        return ngx_http_ratelimit_redis_duplicate(cf);
    }

    value = cf->args->elts;

    if (ngx_ratelimit_number_parse(value[1].data, value[1].len, 0,
                                   NGX_HTTP_RATELIMIT_REDIS_MAX_DATABASE, &n)
        != 0)
    {
        return ngx_http_ratelimit_redis_invalid(cf, "a number");
    }

    redis->database = n;

    return NGX_CONF_OK;
}


/* The file's first line, without its end, and the file's whole path. */
static char *
ngx_http_ratelimit_redis_file(ngx_conf_t *cf, ngx_str_t *text, ngx_str_t *path)
{
    u_char      buf[NGX_RATELIMIT_REDIS_FILE_BYTES];
    ssize_t     n;
    ngx_fd_t    fd;
    ngx_str_t  *value, name, line;

    value = cf->args->elts;
    name = value[1];

    if (ngx_conf_full_name(cf->cycle, &name, 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    fd = ngx_open_file(name.data, NGX_FILE_RDONLY, NGX_FILE_OPEN, 0);

    if (fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_open_file_n " \"%V\" failed in \"%V\"", &name,
                           &value[0]);
        return NGX_CONF_ERROR;
    }

    n = ngx_read_fd(fd, buf, sizeof(buf));

    if (n == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_read_fd_n " \"%V\" failed in \"%V\"", &name,
                           &value[0]);
    }

    if (ngx_close_file(fd) == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_close_file_n " \"%V\" failed", &name);
        n = -1;
    }

    if (n == -1) {
        return NGX_CONF_ERROR;
    }

    if (ngx_ratelimit_redis_first_line(buf, n, &line) != NGX_OK) {
        ngx_explicit_memzero(buf, sizeof(buf));
        return ngx_http_ratelimit_redis_invalid(cf,
                        "a file whose first line has 1 to 1023 bytes");
    }

    text->len = line.len;
    text->data = ngx_pstrdup(cf->pool, &line);

    ngx_explicit_memzero(buf, sizeof(buf));

    if (path) {
        *path = name;
    }

    return text->data ? NGX_CONF_OK : NGX_CONF_ERROR;
}


char *
ngx_http_ratelimit_redis_duplicate(ngx_conf_t *cf)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%V\" has another \"%V\", expected one \"%V\"",
                       &value[0], &value[1], &value[0]);

    return NGX_CONF_ERROR;
}


char *
ngx_http_ratelimit_redis_invalid(ngx_conf_t *cf, const char *expected)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%V\" has an invalid \"%V\", expected %s",
                       &value[0], &value[1], expected);

    return NGX_CONF_ERROR;
}
