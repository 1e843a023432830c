/*
 * The "ratelimit_peers" block: where this gateway listens, where the others
 * are, and the secret that all of them have. A directive of the block is a row
 * of a table. Names are resolved as those of a "ratelimit_redis" block.
 */

#include "ngx_rl_conf.h"
#include "ngx_rl_fleet.h"
#include "ngx_rl_guard.h"

#include "ngx_rl_text.h"

#define NGX_RL_PEERS_PORT              7946
#define NGX_RL_PEERS_RESOLVER_TIMEOUT  30000   /* as in nginx */
#define NGX_RL_PEERS_SECRET            16      /* bytes at least */

#define NGX_RL_PEERS_AT(member)  offsetof(ngx_rl_peers_t, member)


static const char *
ngx_rl_peers_listen_line(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    ngx_rl_peers_t *peers = target;

    ngx_url_t  u;

    if (peers->listen.sockaddr) {
        return "one \"listen\"";
    }

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = *value;
    u.default_port = NGX_RL_PEERS_PORT;
    u.listen = 1;
    u.no_resolve = 1;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK || u.naddrs != 1
        || u.family == AF_UNIX)
    {
        return row->expected;
    }

    peers->listen = u.addrs[0];

    return NULL;
}


static const char *
ngx_rl_peers_peer(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
    ngx_str_t *value)
{
    ngx_rl_peers_t *peers = target;

    ngx_url_t             u;
    ngx_rl_peers_host_t  *host;

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = *value;
    u.default_port = NGX_RL_PEERS_PORT;
    u.no_resolve = 1;

    if (peers->hosts.nelts == NGX_RL_PEERS_MOST
        || ngx_parse_url(cf->pool, &u) != NGX_OK || u.family == AF_UNIX)
    {
        return row->expected;
    }

    host = ngx_array_push(&peers->hosts);
    if (host == NULL) {
        return "";
    }

    host->text = *value;
    host->host = u.host;
    host->port = u.port;
    host->naddrs = u.naddrs;
    host->addrs = u.addrs;

    if (host->host.len > 2 && host->host.data[0] == '[') {
        host->host.data++;
        host->host.len -= 2;
    }

    return NULL;
}


static const ngx_rl_row_t  ngx_rl_peers_rows[] = {
    { ngx_string("listen"), ngx_rl_peers_listen_line,
      .expected = "an address with a port, as in \"10.0.0.5:7946\"" },
    { ngx_string("peer"), ngx_rl_peers_peer,
      .expected = "\"host:port\", in at most 64 lines" },
    { ngx_string("secret_file"), ngx_rl_row_line, NGX_RL_PEERS_AT(secret),
      .expected = "a file whose first line has 1 to 1023 bytes" },
    NGX_RL_TLS_ROWS(ngx_rl_peers_t),
    { .name = ngx_null_string }
};


/* One line of the block. */
static char *
ngx_rl_peers_line(ngx_conf_t *cf, ngx_command_t *dummy, void *conf)
{
    ngx_rl_peers_t *peers = conf;

    ngx_str_t           *value, none;
    const char          *expected;
    ngx_rl_hint_t        hint;
    const ngx_rl_row_t  *row;

    value = cf->args->elts;
    row = ngx_rl_row_find(ngx_rl_peers_rows, &value[0], &none, &hint);

    if (row == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "unknown directive \"%V\" in \"ratelimit_peers\" "
                           "\"%V\", %V", &value[0], &peers->name,
                           ngx_rl_hint_text(&hint, ""));
        return NGX_CONF_ERROR;
    }

    if (cf->args->nelts != 2) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid number of arguments in \"%V\" of "
                           "\"ratelimit_peers\" \"%V\", expected one",
                           &value[0], &peers->name);
        return NGX_CONF_ERROR;
    }

    if (row->set == ngx_rl_row_text && ((ngx_str_t *) ngx_rl_row_at(peers,
                                                              row))->len)
    {
        return ngx_rl_wrong(cf, "has another \"%V\", expected one \"%V\"",
                            &value[1], &value[0]);
    }

    expected = row->set(cf, peers, row, &value[1]);

    if (expected && expected[0]) {
        ngx_rl_wrong(cf, "has an invalid \"%V\", expected %s", &value[1],
                     expected);
    }

    return expected ? NGX_CONF_ERROR : NGX_CONF_OK;
}


/* What is wrong with the block as a whole; NULL: nothing. */
static const char *
ngx_rl_peers_wrong(const ngx_rl_peers_t *peers)
{
    const ngx_rl_tls_t  *tls;

    tls = &peers->tls;

    if (peers->listen.sockaddr == NULL) {
        return "no address of its own, expected \"listen\"";
    }

    if (peers->hosts.nelts == 0) {
        return "no other gateway, expected \"peer\"";
    }

    if (peers->secret.len < NGX_RL_PEERS_SECRET) {
        return "no secret of 16 bytes or more, expected \"secret_file\"";
    }

    if (tls->on && !(tls->ca.len && tls->certificate.len && tls->key.len)) {
        return "\"tls on\", expected \"tls_ca\", \"tls_certificate\" and "
               "\"tls_certificate_key\" with it";
    }

    if (!tls->on && (tls->ca.len || tls->certificate.len || tls->key.len
                     || tls->name.len))
    {
        return "lines of TLS, expected \"tls on\" with them";
    }

    return NULL;
}


char *
ngx_rl_peers_block(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_rl_main_conf_t *rmcf = conf;

    char            *rv;
    ngx_str_t       *name;
    ngx_conf_t       save;
    const char      *wrong;
    ngx_rl_fleet_t  *fleet;
    ngx_rl_peers_t  *peers;

    name = (ngx_str_t *) cf->args->elts + 1;
    wrong = NULL;

    if (!ngx_rl_name_valid(name->data, name->len)) {
        wrong = NGX_RL_NAME_EXPECTED;

    } else if (ngx_rl_named(&rmcf->fleets,
                            offsetof(ngx_rl_fleet_t, peers.name), name, NULL))
    {
        wrong = "one of each name";
    }

    if (wrong) {
        return ngx_rl_wrong(cf, "has an invalid \"%V\", expected %s", name,
                            wrong);
    }

    fleet = ngx_pcalloc(cf->pool, sizeof(ngx_rl_fleet_t));
    if (fleet == NULL) {
        return NGX_CONF_ERROR;
    }

    peers = &fleet->peers;
    peers->name = *name;

    if (ngx_array_init(&peers->hosts, cf->pool, 4, sizeof(ngx_rl_peers_host_t))
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    save = *cf;
    cf->handler = ngx_rl_peers_line;
    cf->handler_conf = (char *) peers;

    rv = ngx_conf_parse(cf, NULL);

    *cf = save;

    if (rv != NGX_CONF_OK) {
        return rv;
    }

    wrong = ngx_rl_peers_wrong(peers);

    if (wrong) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"ratelimit_peers\" \"%V\" has %s", &peers->name,
                           wrong);
        return NGX_CONF_ERROR;
    }

    return (ngx_rl_tls_prepare(cf, &peers->tls, "ratelimit_peers", &peers->name)
            == NGX_OK
            && ngx_rl_peers_prepare(peers) == NGX_OK
            && ngx_rl_fleet_add(cf, fleet, &ngx_http_ratelimit_module)
               == NGX_OK
            && ngx_rl_push(&rmcf->fleets, fleet) == NGX_OK)
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}


ngx_int_t
ngx_rl_peers_resolve_names(ngx_conf_t *cf, ngx_rl_main_conf_t *conf,
    void *entry)
{
    ngx_rl_fleet_t *fleet = entry;

    ngx_url_t                  u;
    ngx_uint_t                 i;
    ngx_rl_peers_t            *peers;
    ngx_rl_peers_host_t       *host;
    ngx_http_core_loc_conf_t  *clcf;

    peers = &fleet->peers;
    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    /* nginx makes one without addresses where there is none */

    if (clcf->resolver && clcf->resolver->connections.nelts) {
        peers->resolver = clcf->resolver;
        peers->resolver_timeout = clcf->resolver_timeout;
        ngx_conf_init_msec_value(peers->resolver_timeout,
                                 NGX_RL_PEERS_RESOLVER_TIMEOUT);
    }

    host = peers->hosts.elts;

    for (i = 0; i < peers->hosts.nelts; i++, host++) {

        if (host->naddrs
            || (peers->resolver && !ngx_rl_guard_localhost(&host->host)))
        {
            continue;
        }

        ngx_memzero(&u, sizeof(ngx_url_t));

        u.url = host->text;
        u.default_port = NGX_RL_PEERS_PORT;

        if (ngx_parse_url(cf->pool, &u) != NGX_OK || u.naddrs == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"ratelimit_peers\" \"%V\" has an invalid "
                               "peer \"%V\" (%s), expected \"host:port\"",
                               &peers->name, &host->text,
                               u.err ? u.err : "no address found");
            return NGX_ERROR;
        }

        host->naddrs = u.naddrs;
        host->addrs = u.addrs;
    }

    return NGX_OK;
}
