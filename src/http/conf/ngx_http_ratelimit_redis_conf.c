/*
 * The "ratelimit_redis" block: where Redis is and how to speak to it. A
 * directive of the block is a row of a table.
 */

#include "ngx_http_ratelimit_redis_names.h"
#include "ngx_http_ratelimit_conf.h"

#include "ngx_http_ratelimit_file.h"

#include "ngx_ratelimit_text.h"

#define NGX_HTTP_RATELIMIT_REDIS_BUCKETS      65536
#define NGX_HTTP_RATELIMIT_REDIS_TIMEOUT      50
#define NGX_HTTP_RATELIMIT_REDIS_MAX_TIMEOUT  10000

#define NGX_HTTP_RATELIMIT_REDIS_NAME                                         \
    "1 to 64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\""

typedef struct ngx_http_ratelimit_redis_row_s  ngx_http_ratelimit_redis_row_t;

/* A block while it is read. */
typedef struct {
    ngx_ratelimit_redis_t        *redis;
    ngx_uint_t                    seen;     /* bits: rows */
} ngx_http_ratelimit_redis_block_t;

typedef char *(*ngx_http_ratelimit_redis_pt)(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis, const ngx_http_ratelimit_redis_row_t *row);

struct ngx_http_ratelimit_redis_row_s {
    ngx_str_t                     name;
    ngx_http_ratelimit_redis_pt   set;
    size_t                        offset;   /* of what is set */
    size_t                        path;     /* of a file's path; 0: none */
    uint64_t                      min;      /* of a number */
    uint64_t                      max;      /* the same; bytes of a text, if
                                               not 0 */
    const char                   *expected;
    ngx_ratelimit_redis_mode_e    mode;     /* of hosts */
};

static char *ngx_http_ratelimit_redis_directive(ngx_conf_t *cf,
    ngx_command_t *dummy, void *conf);
static char *ngx_http_ratelimit_redis_hosts(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis, const ngx_http_ratelimit_redis_row_t *row);
static char *ngx_http_ratelimit_redis_text(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis, const ngx_http_ratelimit_redis_row_t *row);
static char *ngx_http_ratelimit_redis_word(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis, const ngx_http_ratelimit_redis_row_t *row);
static char *ngx_http_ratelimit_redis_number(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis, const ngx_http_ratelimit_redis_row_t *row);
static char *ngx_http_ratelimit_redis_timeout(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis, const ngx_http_ratelimit_redis_row_t *row);
static char *ngx_http_ratelimit_redis_flag(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis, const ngx_http_ratelimit_redis_row_t *row);
static char *ngx_http_ratelimit_redis_file(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis, const ngx_http_ratelimit_redis_row_t *row);
static char *ngx_http_ratelimit_redis_check(ngx_conf_t *cf,
    ngx_ratelimit_redis_t *redis);
static const char *ngx_http_ratelimit_redis_check_users(
    const ngx_ratelimit_redis_t *redis);
static const char *ngx_http_ratelimit_redis_check_tls(
    const ngx_ratelimit_redis_t *redis);
static char *ngx_http_ratelimit_redis_duplicate(ngx_conf_t *cf);
static char *ngx_http_ratelimit_redis_invalid(ngx_conf_t *cf,
    const char *expected);

#define ngx_http_ratelimit_redis_at(member)                                   \
    offsetof(ngx_ratelimit_redis_t, member)
#define ngx_http_ratelimit_redis_member(redis, offset)                        \
    ((void *) ((u_char *) (redis) + (offset)))

/* The first three are hosts; "server" takes one argument, the others many. */
static const ngx_http_ratelimit_redis_row_t
    ngx_http_ratelimit_redis_rows[] =
{
    { ngx_string("server"), ngx_http_ratelimit_redis_hosts,
      .mode = NGX_RATELIMIT_REDIS_SERVER },
    { ngx_string("cluster"), ngx_http_ratelimit_redis_hosts,
      .mode = NGX_RATELIMIT_REDIS_CLUSTER },
    { ngx_string("sentinel"), ngx_http_ratelimit_redis_hosts,
      .mode = NGX_RATELIMIT_REDIS_SENTINEL },
    { ngx_string("sentinel_username"), ngx_http_ratelimit_redis_text,
      .offset = ngx_http_ratelimit_redis_at(sentinel_username),
      .expected = "a name" },
    { ngx_string("sentinel_password_file"), ngx_http_ratelimit_redis_file,
      .offset = ngx_http_ratelimit_redis_at(sentinel_password),
      .path = ngx_http_ratelimit_redis_at(sentinel_password_file) },
    { ngx_string("timeout"), ngx_http_ratelimit_redis_timeout,
      .offset = ngx_http_ratelimit_redis_at(timeout) },
    { ngx_string("username"), ngx_http_ratelimit_redis_text,
      .offset = ngx_http_ratelimit_redis_at(username),
      .expected = "a name" },
    { ngx_string("password_file"), ngx_http_ratelimit_redis_file,
      .offset = ngx_http_ratelimit_redis_at(password),
      .path = ngx_http_ratelimit_redis_at(password_file) },
    { ngx_string("secret_file"), ngx_http_ratelimit_redis_file,
      .offset = ngx_http_ratelimit_redis_at(secret) },
    { ngx_string("prefix"), ngx_http_ratelimit_redis_word,
      .offset = ngx_http_ratelimit_redis_at(prefix) },
    { ngx_string("buckets"), ngx_http_ratelimit_redis_number,
      .offset = ngx_http_ratelimit_redis_at(buckets),
      .min = 1, .max = 1 << 20,
      .expected = "a power of two from 1 to 1048576" },
    { ngx_string("database"), ngx_http_ratelimit_redis_number,
      .offset = ngx_http_ratelimit_redis_at(database),
      .max = 2147483647, .expected = "a number" },
    { ngx_string("tls"), ngx_http_ratelimit_redis_flag,
      .offset = ngx_http_ratelimit_redis_at(tls.on) },
    { ngx_string("tls_ca"), ngx_http_ratelimit_redis_text,
      .offset = ngx_http_ratelimit_redis_at(tls.ca), .expected = "a text" },
    { ngx_string("tls_name"), ngx_http_ratelimit_redis_text,
      .offset = ngx_http_ratelimit_redis_at(tls.name),
      .max = NGX_RATELIMIT_REDIS_MAX_HOST, .expected = "a text" },
    { ngx_string("tls_certificate"), ngx_http_ratelimit_redis_text,
      .offset = ngx_http_ratelimit_redis_at(tls.certificate),
      .expected = "a text" },
    { ngx_string("tls_certificate_key"), ngx_http_ratelimit_redis_text,
      .offset = ngx_http_ratelimit_redis_at(tls.key), .expected = "a text" },
    { .name = ngx_null_string }
};

char *
ngx_http_ratelimit_redis(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_ratelimit_main_conf_t *rmcf = conf;

    char                              *rv;
    ngx_str_t                         *value;
    ngx_uint_t                         i;
    ngx_conf_t                         save;
    ngx_ratelimit_redis_t             *redis, **entry;
    ngx_http_ratelimit_redis_block_t   block;

    value = cf->args->elts;

    if (!ngx_ratelimit_name_valid(value[1].data, value[1].len)) {
        return ngx_http_ratelimit_redis_invalid(cf,
                                                NGX_HTTP_RATELIMIT_REDIS_NAME);
    }

    entry = rmcf->redis.elts;

    for (i = 0; i < rmcf->redis.nelts; i++) {
        if (ngx_ratelimit_equal(&entry[i]->name, &value[1])) {
            return ngx_http_ratelimit_redis_invalid(cf, "one of each name");
        }
    }

    redis = ngx_pcalloc(cf->pool, sizeof(ngx_ratelimit_redis_t));
    if (redis == NULL) {
        return NGX_CONF_ERROR;
    }

    redis->name = value[1];
    redis->database = NGX_CONF_UNSET_UINT;

    if (ngx_array_init(&redis->hosts, cf->pool, 4,
                       sizeof(ngx_ratelimit_redis_host_t))
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    block.redis = redis;
    block.seen = 0;

    save = *cf;
    cf->handler = ngx_http_ratelimit_redis_directive;
    cf->handler_conf = (char *) &block;

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
    ngx_http_ratelimit_redis_block_t *block = conf;

    ngx_str_t                             *value;
    ngx_uint_t                             bit, many;
    ngx_http_ratelimit_hint_t              hint;
    const ngx_http_ratelimit_redis_row_t  *row;

    value = cf->args->elts;
    ngx_http_ratelimit_hint_init(&hint, &value[0]);

    for (row = ngx_http_ratelimit_redis_rows; row->name.len; row++) {
        if (ngx_ratelimit_equal(&value[0], &row->name)) {
            break;
        }

        ngx_http_ratelimit_hint_add(&hint, &row->name);
    }

    if (row->name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "unknown directive \"%V\" in \"ratelimit_redis\" "
                           "\"%V\", %V", &value[0], &block->redis->name,
                           ngx_http_ratelimit_hint_text(&hint, ""));
        return NGX_CONF_ERROR;
    }

    many = (row->mode != NGX_RATELIMIT_REDIS_SERVER);

    if (cf->args->nelts < 2 || (cf->args->nelts > 2 && !many)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid number of arguments in \"%V\" of "
                           "\"ratelimit_redis\" \"%V\", expected %s",
                           &value[0], &block->redis->name,
                           many ? "one or more" : "one");
        return NGX_CONF_ERROR;
    }

    bit = (ngx_uint_t) 1 << (row - ngx_http_ratelimit_redis_rows);

    if ((block->seen & bit) && row->set != ngx_http_ratelimit_redis_hosts) {
        return ngx_http_ratelimit_redis_duplicate(cf);
    }

    block->seen |= bit;

    return row->set(cf, block->redis, row);
}


static char *
ngx_http_ratelimit_redis_hosts(ngx_conf_t *cf, ngx_ratelimit_redis_t *redis,
    const ngx_http_ratelimit_redis_row_t *row)
{
    char        *rv;
    ngx_str_t   *value;
    ngx_uint_t   i;

    value = cf->args->elts;
    i = 1;

    if (redis->hosts.nelts) {
        return ngx_http_ratelimit_redis_invalid(cf,
                     "one \"server\", one \"cluster\" or one \"sentinel\"");
    }

    redis->mode = row->mode;

    if (row->mode == NGX_RATELIMIT_REDIS_SENTINEL) {

        if (cf->args->nelts < 3) {
            return ngx_http_ratelimit_redis_invalid(cf,
                         "a master's name and one or more \"host:port\"");
        }

        if (!ngx_ratelimit_name_valid(value[1].data, value[1].len)) {
            return ngx_http_ratelimit_redis_invalid(cf,
                         "a master's name of " NGX_HTTP_RATELIMIT_REDIS_NAME);
        }

        redis->master = value[1];
        i = 2;
    }

    for ( /* void */ ; i < cf->args->nelts; i++) {
        rv = ngx_http_ratelimit_redis_addr(cf, redis, &value[i]);
        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_ratelimit_redis_text(ngx_conf_t *cf, ngx_ratelimit_redis_t *redis,
    const ngx_http_ratelimit_redis_row_t *row)
{
    ngx_str_t  *value, *text;

    value = cf->args->elts;
    text = ngx_http_ratelimit_redis_member(redis, row->offset);

    if (row->max && value[1].len > row->max) {
        return ngx_http_ratelimit_redis_invalid(cf, "at most 255 characters");
    }

    if (value[1].len == 0) {
        return ngx_http_ratelimit_redis_invalid(cf, row->expected);
    }

    *text = value[1];

    return NGX_CONF_OK;
}


static char *
ngx_http_ratelimit_redis_word(ngx_conf_t *cf, ngx_ratelimit_redis_t *redis,
    const ngx_http_ratelimit_redis_row_t *row)
{
    ngx_str_t  *value, *word;

    value = cf->args->elts;
    word = ngx_http_ratelimit_redis_member(redis, row->offset);

    if (!ngx_ratelimit_name_valid(value[1].data, value[1].len)) {
        return ngx_http_ratelimit_redis_invalid(cf,
                                                NGX_HTTP_RATELIMIT_REDIS_NAME);
    }

    *word = value[1];

    return NGX_CONF_OK;
}


/* Any number in the range; one that has to be 1 or more is a power of two. */
static char *
ngx_http_ratelimit_redis_number(ngx_conf_t *cf, ngx_ratelimit_redis_t *redis,
    const ngx_http_ratelimit_redis_row_t *row)
{
    uint64_t     n;
    ngx_str_t   *value;
    ngx_uint_t  *number;

    value = cf->args->elts;
    number = ngx_http_ratelimit_redis_member(redis, row->offset);

    if (ngx_ratelimit_number_parse(value[1].data, value[1].len, row->min,
                                   row->max, &n)
        != 0
        || (row->min && (n & (n - 1))))
    {
        return ngx_http_ratelimit_redis_invalid(cf, row->expected);
    }

    *number = n;

    return NGX_CONF_OK;
}


static char *
ngx_http_ratelimit_redis_timeout(ngx_conf_t *cf, ngx_ratelimit_redis_t *redis,
    const ngx_http_ratelimit_redis_row_t *row)
{
    ngx_int_t   timeout;
    ngx_str_t  *value;

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
ngx_http_ratelimit_redis_flag(ngx_conf_t *cf, ngx_ratelimit_redis_t *redis,
    const ngx_http_ratelimit_redis_row_t *row)
{
    ngx_str_t   *value;
    ngx_flag_t  *flag;

    value = cf->args->elts;
    flag = ngx_http_ratelimit_redis_member(redis, row->offset);

    *flag = (ngx_strcmp(value[1].data, "on") == 0);

    if (!*flag && ngx_strcmp(value[1].data, "off") != 0) {
        return ngx_http_ratelimit_redis_invalid(cf, "\"on\" or \"off\"");
    }

    return NGX_CONF_OK;
}


/* The file's first line without its end; and the file's whole path. */
static char *
ngx_http_ratelimit_redis_file(ngx_conf_t *cf, ngx_ratelimit_redis_t *redis,
    const ngx_http_ratelimit_redis_row_t *row)
{
    ngx_int_t   rc;
    ngx_str_t  *value, *text, *path, name, content, line;

    value = cf->args->elts;
    name = value[1];
    text = ngx_http_ratelimit_redis_member(redis, row->offset);
    path = ngx_http_ratelimit_redis_member(redis, row->path);

    if (ngx_http_ratelimit_file_read(cf, &name,
                                     NGX_RATELIMIT_REDIS_FILE_BYTES - 1,
                                     &content)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    rc = ngx_ratelimit_redis_first_line(content.data, content.len, &line);

    if (rc == NGX_OK) {
        text->data = ngx_pstrdup(cf->pool, &line);
        text->len = line.len;
    }

    ngx_http_ratelimit_file_free(&content);

    if (rc != NGX_OK) {
        return ngx_http_ratelimit_redis_invalid(cf,
                        "a file whose first line has 1 to 1023 bytes");
    }

    if (row->path) {
        *path = name;
    }

    return text->data ? NGX_CONF_OK : NGX_CONF_ERROR;
}


/* Checks the block as a whole and sets the defaults. */
static char *
ngx_http_ratelimit_redis_check(ngx_conf_t *cf, ngx_ratelimit_redis_t *redis)
{
    const char  *wrong;

    wrong = ngx_http_ratelimit_redis_check_users(redis);

    if (wrong == NULL) {
        wrong = ngx_http_ratelimit_redis_check_tls(redis);
    }

    if (wrong) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_redis\" \"%V\" has %s", &redis->name,
                           wrong);
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

    return (ngx_ratelimit_redis_tls_prepare(cf, redis) == NGX_OK)
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}


/* Returns what is wrong with hosts and users, or NULL. */
static const char *
ngx_http_ratelimit_redis_check_users(const ngx_ratelimit_redis_t *redis)
{
    if (redis->hosts.nelts == 0) {
        return "no address, expected \"server\", \"cluster\" or \"sentinel\"";
    }

    if (redis->username.len && redis->password.len == 0) {
        return "a \"username\", expected a \"password_file\" with it";
    }

    if (redis->mode != NGX_RATELIMIT_REDIS_SENTINEL
        && (redis->sentinel_username.len || redis->sentinel_password.len))
    {
        return "a user for sentinels, expected \"sentinel\" with it";
    }

    if (redis->sentinel_username.len && redis->sentinel_password.len == 0) {
        return "a \"sentinel_username\", expected a "
               "\"sentinel_password_file\" with it";
    }

    if (redis->mode == NGX_RATELIMIT_REDIS_CLUSTER
        && redis->database != NGX_CONF_UNSET_UINT)
    {
        return "a \"database\", expected none with \"cluster\"";
    }

    return NULL;
}


/* The same of the "tls" lines. */
static const char *
ngx_http_ratelimit_redis_check_tls(const ngx_ratelimit_redis_t *redis)
{
    ngx_uint_t                         i;
    const ngx_ratelimit_redis_tls_t   *tls;
    const ngx_ratelimit_redis_host_t  *hosts;

    tls = &redis->tls;

    if (!tls->on) {
        return tls->ca.len ? "\"tls_ca\", expected \"tls on\" with it"
               : tls->name.len ? "\"tls_name\", expected \"tls on\" with it"
               : tls->certificate.len
               ? "\"tls_certificate\", expected \"tls on\" with it"
               : tls->key.len
               ? "\"tls_certificate_key\", expected \"tls on\" with it"
               : NULL;
    }

    if (tls->certificate.len && tls->key.len == 0) {
        return "\"tls_certificate\", expected \"tls_certificate_key\" with it";
    }

    if (tls->key.len && tls->certificate.len == 0) {
        return "\"tls_certificate_key\", expected \"tls_certificate\" with it";
    }

    /* a path is no name that a certificate could be for */

    hosts = redis->hosts.elts;

    for (i = 0; i < redis->hosts.nelts && tls->name.len == 0; i++) {
        if (hosts[i].port == 0) {
            return "\"tls on\" and \"unix:\", expected \"tls_name\" with it";
        }
    }

    return NULL;
}


static char *
ngx_http_ratelimit_redis_duplicate(ngx_conf_t *cf)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%V\" has another \"%V\", expected one \"%V\"",
                       &value[0], &value[1], &value[0]);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_ratelimit_redis_invalid(ngx_conf_t *cf, const char *expected)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%V\" has an invalid \"%V\", expected %s",
                       &value[0], &value[1], expected);

    return NGX_CONF_ERROR;
}
