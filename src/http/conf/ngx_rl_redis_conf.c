/*
 * The "ratelimit_redis" block: where Redis is and how to speak to it. A
 * directive of the block is a row of a table. If http {} has a "resolver", the
 * gateway resolves names while it serves. Without a "resolver" they are
 * resolved once, when all of the configuration is read.
 */

#include "ngx_rl_conf.h"
#include "ngx_rl_guard.h"

#include "ngx_rl_text.h"

#define NGX_RL_REDIS_BUCKETS           65536
#define NGX_RL_REDIS_TIMEOUT           50
#define NGX_RL_REDIS_MAX_TIME          10000
#define NGX_RL_REDIS_INTERVAL          100
#define NGX_RL_REDIS_RESOLVER_TIMEOUT  30000   /* as in nginx */

#define NGX_RL_REDIS_LINE  "a file whose first line has 1 to 1023 bytes"

/* A block while it is read. */
typedef struct {
    ngx_rl_redis_t  *redis;
    ngx_uint_t       seen;     /* bits: rows */
} ngx_rl_redis_block_t;

#define ngx_rl_redis_port(redis)                                              \
    ((redis)->mode == NGX_RL_REDIS_SENTINEL ? 26379 : 6379)

#define NGX_RL_REDIS_AT(member)  offsetof(ngx_rl_redis_t, member)
#define ngx_rl_redis_member(redis, offset)                                    \
    (*(size_t *) ((u_char *) (redis) + (offset)))


/*
 * Whether a name server may know it: labels of letters, digits, "-" and "_",
 * the last one not of digits alone, as an address has. If there is a
 * "resolver", no name server is asked before the gateway serves, so two
 * addresses with a comma between must be found here.
 */
static ngx_uint_t
ngx_rl_redis_is_name(const ngx_str_t *host)
{
    u_char      c;
    size_t      i, len, label;
    ngx_uint_t  digits;

    len = host->len - (host->len && host->data[host->len - 1] == '.');
    label = 0;     /* where it begins */
    digits = 1;

    for (i = 0; i < len; i++) {
        c = host->data[i];

        if (c == '.') {
            if (i == label) {
                return 0;
            }

            label = i + 1;
            digits = 1;

        } else if (c < '0' || c > '9') {
            digits = 0;

            if (((c | 0x20) < 'a' || (c | 0x20) > 'z') && c != '-' && c != '_')
            {
                return 0;
            }
        }
    }

    return label < len && !digits;
}


/*
 * Adds an address, "host[:port]" or "unix:/path". A name has no addresses
 * before all of the configuration is read: only then it is known whether there
 * is a resolver.
 */
static const char *
ngx_rl_redis_addr(ngx_conf_t *cf, ngx_rl_redis_t *redis, ngx_str_t *text)
{
    char                 *why;
    ngx_url_t             u;
    ngx_rl_redis_host_t  *host;
    ngx_rl_redis_name_t  *name;
    ngx_rl_main_conf_t   *conf;

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = *text;
    u.default_port = ngx_rl_redis_port(redis);
    u.no_resolve = 1;
    why = NULL;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK) {
        why = u.err ? u.err : "invalid host";

    } else if (u.host.len > NGX_RL_REDIS_MAX_HOST) {
        why = "too long";

    } else if (u.naddrs == 0 && !ngx_rl_redis_is_name(&u.host)) {
        why = "invalid host";
    }

    if (why) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_redis\" \"%V\" has an invalid "
                           "address \"%V\" (%s), expected \"host:port\"",
                           &redis->name, text, why);
        return "";
    }

    host = ngx_array_push(&redis->hosts);
    if (host == NULL) {
        return "";
    }

    host->host = (u.family == AF_UNIX) ? u.url : u.host;
    host->port = (u.family == AF_UNIX) ? 0 : u.port;

    /* a certificate is for the address without its brackets, a Cluster says it
       so, too */

    if (host->host.len > 2 && host->host.data[0] == '[') {
        host->host.data++;
        host->host.len -= 2;
    }

    host->naddrs = u.naddrs;
    host->addrs = u.addrs;

    if (u.naddrs) {
        return NULL;
    }

    conf = ngx_http_conf_get_module_main_conf(cf, ngx_http_ratelimit_module);

    name = ngx_array_push(&conf->redis_names);
    if (name == NULL) {
        return "";
    }

    name->redis = redis;
    name->host = redis->hosts.nelts - 1;
    name->text = *text;
    ngx_rl_place(cf, &name->place);

    return NULL;
}


static const char *
ngx_rl_redis_hosts(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    ngx_rl_redis_t *redis = target;

    ngx_str_t   *last;
    const char  *expected;

    last = (ngx_str_t *) cf->args->elts + cf->args->nelts;

    if (redis->hosts.nelts) {
        return "one \"server\", one \"cluster\" or one \"sentinel\"";
    }

    redis->mode = (ngx_rl_redis_mode_e) row->min;

    if (redis->mode == NGX_RL_REDIS_SENTINEL) {

        if (last - value < 2) {
            return "a master's name and one or more \"host:port\"";
        }

        if (!ngx_rl_name_valid(value->data, value->len)) {
            return "a master's name of " NGX_RL_NAME_EXPECTED;
        }

        redis->master = *value++;
    }

    for ( /* void */ ; value < last; value++) {
        expected = ngx_rl_redis_addr(cf, redis, value);
        if (expected) {
            return expected;
        }
    }

    return NULL;
}


const char *
ngx_rl_row_line(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    ngx_int_t   rc;
    ngx_str_t  *text, *path, name, content, line;

    name = *value;

    if (ngx_rl_file_read(cf, &name, NGX_RL_REDIS_FILE_BYTES - 1, &content)
        != NGX_OK)
    {
        return "";
    }

    text = ngx_rl_row_at(target, row);
    rc = ngx_rl_redis_first_line(content.data, content.len, &line);

    if (rc == NGX_OK) {
        *text = ngx_rl_str(ngx_pstrdup(cf->pool, &line), line.len);
    }

    ngx_rl_file_free(&content);

    if (rc != NGX_OK) {
        return row->expected;
    }

    if (row->other) {
        path = (ngx_str_t *) ((u_char *) target + row->other);
        *path = name;
    }

    return text->data ? NULL : "";
}


static const char *
ngx_rl_redis_time(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    ngx_int_t    ms;
    ngx_msec_t  *time;

    ms = ngx_parse_time(value, 0);

    if (ms < (ngx_int_t) row->min || ms > NGX_RL_REDIS_MAX_TIME) {
        return row->expected;
    }

    time = ngx_rl_row_at(target, row);
    *time = ms;

    return NULL;
}


static const char *
ngx_rl_redis_prefix(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    return ngx_rl_name_valid(value->data, value->len)
           ? ngx_rl_row_text(cf, target, row, value) : row->expected;
}


/* Any number in the range; one that has to be 1 or more is a power of two. */
static const char *
ngx_rl_redis_conf_number(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    uint64_t     n;
    ngx_uint_t  *number;

    if (ngx_rl_number_parse(value->data, value->len, row->min, row->max, &n)
        != 0
        || (row->min && (n & (n - 1))))
    {
        return row->expected;
    }

    number = ngx_rl_row_at(target, row);
    *number = n;

    return NULL;
}


/* The first three are hosts; "server" takes one argument, the others many. */
static const ngx_rl_row_t  ngx_rl_redis_rows[] = {
    { ngx_string("server"), ngx_rl_redis_hosts, .min = NGX_RL_REDIS_SERVER },
    { ngx_string("cluster"), ngx_rl_redis_hosts, .min = NGX_RL_REDIS_CLUSTER },
    { ngx_string("sentinel"), ngx_rl_redis_hosts,
      .min = NGX_RL_REDIS_SENTINEL },
    { ngx_string("sentinel_username"), ngx_rl_row_text,
      NGX_RL_REDIS_AT(sentinel_username), .expected = "a name" },
    { ngx_string("sentinel_password_file"), ngx_rl_row_line,
      NGX_RL_REDIS_AT(sentinel_password),
      .other = NGX_RL_REDIS_AT(sentinel_password_file),
      .expected = NGX_RL_REDIS_LINE },
    { ngx_string("timeout"), ngx_rl_redis_time, NGX_RL_REDIS_AT(timeout),
      .min = 1, .expected = "a time from 1ms to 10s, as in \"50ms\": a number "
                            "alone is seconds" },
    { ngx_string("interval"), ngx_rl_redis_time, NGX_RL_REDIS_AT(interval),
      .min = NGX_RL_REDIS_INTERVAL,
      .expected = "a time from 100ms to 10s, as in \"500ms\"" },
    { ngx_string("username"), ngx_rl_row_text, NGX_RL_REDIS_AT(username),
      .expected = "a name" },
    { ngx_string("password_file"), ngx_rl_row_line, NGX_RL_REDIS_AT(password),
      .other = NGX_RL_REDIS_AT(password_file), .expected = NGX_RL_REDIS_LINE },
    { ngx_string("secret_file"), ngx_rl_row_line, NGX_RL_REDIS_AT(secret),
      .expected = NGX_RL_REDIS_LINE },
    { ngx_string("prefix"), ngx_rl_redis_prefix, NGX_RL_REDIS_AT(prefix),
      .expected = NGX_RL_NAME_EXPECTED },
    { ngx_string("buckets"), ngx_rl_redis_conf_number, NGX_RL_REDIS_AT(buckets),
      1, 1 << 20, "a power of two from 1 to 1048576", 0, 0 },
    { ngx_string("database"), ngx_rl_redis_conf_number,
      NGX_RL_REDIS_AT(database), 0, 2147483647, "a number", 0, 0 },
    NGX_RL_TLS_ROWS(ngx_rl_redis_t),
    { .name = ngx_null_string }
};


/* One line of the block. */
static char *
ngx_rl_redis_directive(ngx_conf_t *cf, ngx_command_t *dummy, void *conf)
{
    ngx_rl_redis_block_t *block = conf;

    ngx_str_t           *value, none;
    ngx_uint_t           bit, many;
    const char          *expected;
    ngx_rl_hint_t        hint;
    const ngx_rl_row_t  *row;

    value = cf->args->elts;
    row = ngx_rl_row_find(ngx_rl_redis_rows, &value[0], &none, &hint);

    if (row == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "unknown directive \"%V\" in \"ratelimit_redis\" "
                           "\"%V\", %V", &value[0], &block->redis->name,
                           ngx_rl_hint_text(&hint, ""));
        return NGX_CONF_ERROR;
    }

    many = (row->set == ngx_rl_redis_hosts && row->min != NGX_RL_REDIS_SERVER);

    if (cf->args->nelts < 2 || (cf->args->nelts > 2 && !many)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid number of arguments in \"%V\" of "
                           "\"ratelimit_redis\" \"%V\", expected %s",
                           &value[0], &block->redis->name,
                           many ? "one or more" : "one");
        return NGX_CONF_ERROR;
    }

    bit = (ngx_uint_t) 1 << (row - ngx_rl_redis_rows);

    if ((block->seen & bit) && row->set != ngx_rl_redis_hosts) {
        return ngx_rl_wrong(cf, "has another \"%V\", expected one \"%V\"",
                            &value[1], &value[0]);
    }

    block->seen |= bit;

    expected = row->set(cf, block->redis, row, &value[1]);

    if (expected && expected[0]) {
        ngx_rl_wrong(cf, "has an invalid \"%V\", expected %s", &value[1],
                     expected);
    }

    return expected ? NGX_CONF_ERROR : NGX_CONF_OK;
}


/* Lines that need another line: offsets of their lengths, and of "tls". */
static const struct {
    size_t        with;
    size_t        without;
    const char   *wrong;
} ngx_rl_redis_needs[] = {
    { NGX_RL_REDIS_AT(username.len), NGX_RL_REDIS_AT(password.len),
      "a \"username\", expected a \"password_file\" with it" },
    { NGX_RL_REDIS_AT(sentinel_username.len),
      NGX_RL_REDIS_AT(sentinel_password.len),
      "a \"sentinel_username\", expected a \"sentinel_password_file\" with "
      "it" },
    { NGX_RL_REDIS_AT(tls.ca.len), NGX_RL_REDIS_AT(tls.on),
      "\"tls_ca\", expected \"tls on\" with it" },
    { NGX_RL_REDIS_AT(tls.name.len), NGX_RL_REDIS_AT(tls.on),
      "\"tls_name\", expected \"tls on\" with it" },
    { NGX_RL_REDIS_AT(tls.certificate.len), NGX_RL_REDIS_AT(tls.on),
      "\"tls_certificate\", expected \"tls on\" with it" },
    { NGX_RL_REDIS_AT(tls.key.len), NGX_RL_REDIS_AT(tls.on),
      "\"tls_certificate_key\", expected \"tls on\" with it" },
    { NGX_RL_REDIS_AT(tls.certificate.len), NGX_RL_REDIS_AT(tls.key.len),
      "\"tls_certificate\", expected \"tls_certificate_key\" with it" },
    { NGX_RL_REDIS_AT(tls.key.len), NGX_RL_REDIS_AT(tls.certificate.len),
      "\"tls_certificate_key\", expected \"tls_certificate\" with it" },
    { 0, 0, NULL }
};


/* Checks the block as a whole. Returns NGX_OK or NGX_ERROR (logged). */
static ngx_int_t
ngx_rl_redis_check(ngx_conf_t *cf, const ngx_rl_redis_t *redis)
{
    ngx_uint_t                  i, local, pathname;
    const char                 *wrong;
    const ngx_rl_redis_host_t  *host;

    host = redis->hosts.elts;
    local = 1;
    pathname = 0;

    for (i = 0; i < redis->hosts.nelts; i++) {
        pathname |= (host[i].port == 0);
        local &= host[i].naddrs
                 ? ngx_rl_guard_loopback(host[i].addrs->sockaddr)
                 : ngx_rl_guard_localhost(&host[i].host);
    }

    wrong = NULL;

    if (redis->hosts.nelts == 0) {
        wrong = "no address, expected \"server\", \"cluster\" or \"sentinel\"";

    } else if (redis->mode != NGX_RL_REDIS_SENTINEL
               && (redis->sentinel_username.len
                   || redis->sentinel_password.len))
    {
        wrong = "a user for sentinels, expected \"sentinel\" with it";

    } else if (redis->mode == NGX_RL_REDIS_CLUSTER
               && redis->database != NGX_CONF_UNSET_UINT)
    {
        wrong = "a \"database\", expected none with \"cluster\"";
    }

    for (i = 0; wrong == NULL && ngx_rl_redis_needs[i].wrong; i++) {
        if (ngx_rl_redis_member(redis, ngx_rl_redis_needs[i].with)
            && !ngx_rl_redis_member(redis, ngx_rl_redis_needs[i].without))
        {
            wrong = ngx_rl_redis_needs[i].wrong;
        }
    }

    /* a path is no name that a certificate could be for */

    if (wrong == NULL && redis->tls.on && redis->tls.name.len == 0 && pathname)
    {
        wrong = "\"tls on\" and \"unix:\", expected \"tls_name\" with it";
    }

    if (wrong) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_redis\" \"%V\" has %s", &redis->name,
                           wrong);
        return NGX_ERROR;
    }

    /* where it is only tried, all of it is on this machine */

    if (redis->secret.len == 0 && !local) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"ratelimit_redis\" \"%V\" has no \"secret_file\", "
                           "so a client can choose where its counters are in "
                           "Redis, expected one", &redis->name);
    }

    return NGX_OK;
}


char *
ngx_rl_redis_block(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_main_conf_t *rmcf = conf;

    char                  *rv;
    ngx_str_t             *name;
    ngx_uint_t             i;
    ngx_conf_t             save;
    const char            *wrong;
    ngx_rl_redis_t        *redis, **entry;
    ngx_rl_redis_block_t   block;

    name = (ngx_str_t *) cf->args->elts + 1;
    wrong = NULL;

    if (!ngx_rl_name_valid(name->data, name->len)) {
        wrong = NGX_RL_NAME_EXPECTED;
    }

    entry = rmcf->redis.elts;

    for (i = 0; i < rmcf->redis.nelts; i++) {
        if (ngx_rl_equal(&entry[i]->name, name)) {
            wrong = "one of each name";
        }
    }

    if (wrong) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_redis\" has an invalid \"%V\", "
                           "expected %s", name, wrong);
        return NGX_CONF_ERROR;
    }

    redis = ngx_pcalloc(cf->pool, sizeof(ngx_rl_redis_t));
    if (redis == NULL) {
        return NGX_CONF_ERROR;
    }

    redis->name = *name;
    redis->timeout = NGX_RL_REDIS_TIMEOUT;
    redis->interval = NGX_RL_REDIS_INTERVAL;
    redis->buckets = NGX_RL_REDIS_BUCKETS;
    redis->database = NGX_CONF_UNSET_UINT;
    ngx_str_set(&redis->prefix, "rl");

    if (ngx_array_init(&redis->hosts, cf->pool, 4, sizeof(ngx_rl_redis_host_t))
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    block.redis = redis;
    block.seen = 0;

    save = *cf;
    cf->handler = ngx_rl_redis_directive;
    cf->handler_conf = (char *) &block;

    rv = ngx_conf_parse(cf, NULL);

    *cf = save;

    if (rv != NGX_CONF_OK) {
        return rv;
    }

    if (ngx_rl_redis_check(cf, redis) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    ngx_conf_init_uint_value(redis->database, 0);

    return (ngx_rl_redis_tls_prepare(cf, redis) == NGX_OK
            && ngx_rl_redis_prepare(redis) == NGX_OK
            && ngx_rl_redis_share(cf, redis, &ngx_http_ratelimit_module)
               == NGX_OK
            && ngx_rl_push(&rmcf->redis, redis) == NGX_OK)
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}


ngx_int_t
ngx_rl_redis_names(ngx_conf_t *cf, ngx_rl_main_conf_t *conf)
{
    ngx_url_t                  u;
    ngx_uint_t                 i, resolver;
    ngx_rl_redis_t           **redis;
    ngx_rl_redis_host_t       *host;
    ngx_rl_redis_name_t       *name;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    /* nginx makes one without addresses where there is none */

    resolver = (clcf->resolver && clcf->resolver->connections.nelts);
    redis = conf->redis.elts;

    for (i = 0; i < conf->redis.nelts && resolver; i++) {
        redis[i]->resolver = clcf->resolver;
        redis[i]->resolver_timeout = clcf->resolver_timeout;
        ngx_conf_init_msec_value(redis[i]->resolver_timeout,
                                 NGX_RL_REDIS_RESOLVER_TIMEOUT);
    }

    name = conf->redis_names.elts;

    for (i = 0; i < conf->redis_names.nelts; i++, name++) {

        host = name->redis->hosts.elts;
        host += name->host;

        if (resolver && !ngx_rl_guard_localhost(&host->host)) {
            continue;
        }

        ngx_memzero(&u, sizeof(ngx_url_t));

        u.url = name->text;
        u.default_port = ngx_rl_redis_port(name->redis);

        if (ngx_parse_url(cf->pool, &u) != NGX_OK || u.naddrs == 0) {
            return ngx_rl_wrong_at(cf, NGX_LOG_EMERG, &name->place,
                "\"ratelimit_redis\" \"%V\" has an invalid address \"%V\" "
                "(%s), expected \"host:port\"", &name->redis->name, &name->text,
                u.err ? u.err : "no address found");
        }

        host->naddrs = u.naddrs;
        host->addrs = u.addrs;
    }

    return NGX_OK;
}
