/*
 * The nodes of a client: each is known by the host and port that the
 * configuration or another node has named. Whoever names one gets the node that
 * there is, also where it was known by another name, or a new one.
 */

#include "ngx_rl_redis_client.h"

#define NGX_RL_REDIS_LOG_TEXT  1024  /* bytes of a line, at most */

/* while a breaker is open, the log repeats errors so often */
#define NGX_RL_REDIS_NODE_REMIND_MS  10000
#define NGX_RL_REDIS_SENTINEL_REMIND_MS  60000


ngx_uint_t
ngx_rl_redis_node_next(ngx_rl_redis_client_t *client,
    ngx_rl_redis_node_t **node)
{
    ngx_queue_t  *q;

    q = ngx_queue_next(*node ? &(*node)->queue : &client->nodes);

    if (q == ngx_queue_sentinel(&client->nodes)) {
        return 0;
    }

    *node = ngx_rl_redis_node_of(q);

    return 1;
}


static ngx_rl_redis_node_t *
ngx_rl_redis_node_find(ngx_rl_redis_client_t *client, const ngx_str_t *name,
    ngx_rl_redis_role_e role)
{
    ngx_rl_redis_node_t  *node;

    node = NULL;

    while (ngx_rl_redis_node_next(client, &node)) {
        if (node->conn.name.len == name->len
            && node->role == role
            && ngx_strncasecmp(node->conn.name.data, name->data, name->len)
               == 0)
        {
            return node;
        }
    }

    return NULL;
}


/*
 * The node whose connection leads to a numeric host, NULL where none does. In
 * its handshake it must stay who it is: a name is verified at the end of that.
 */
static ngx_rl_redis_node_t *
ngx_rl_redis_node_at(ngx_rl_redis_client_t *client,
    const ngx_rl_redis_host_t *host)
{
    socklen_t              socklen;
    ngx_sockaddr_t         sa;
    ngx_rl_redis_node_t   *node;
    ngx_rl_redis_state_e   least;

    socklen = ngx_rl_redis_resolve_numeric(host, &sa);

    if (socklen == 0) {
        return NULL;
    }

    least = client->redis->tls.on ? NGX_RL_REDIS_UP : NGX_RL_REDIS_CONNECTING;

    node = NULL;

    while (ngx_rl_redis_node_next(client, &node)) {
        if (node->conn.state >= least
            && node->role == NGX_RL_REDIS_DATA
            && ngx_cmp_sockaddr(&node->conn.sockaddr.sockaddr,
                                node->conn.socklen, &sa.sockaddr, socklen, 1)
               == NGX_OK)
        {
            return node;
        }
    }

    return NULL;
}


static void
ngx_rl_redis_node_identify(ngx_rl_redis_node_t *node,
    const ngx_rl_redis_host_t *host, const ngx_str_t *name)
{
    ngx_rl_redis_conn_set_host(&node->conn, host, name);

    if (node->role != NGX_RL_REDIS_ASKS_MASTER) {
        node->place = ngx_rl_redis_place(node->client->redis->shared,
                                         &node->conn.name);
    }
}


static ngx_rl_redis_node_t *
ngx_rl_redis_node_new(ngx_rl_redis_client_t *client,
    const ngx_rl_redis_host_t *host, const ngx_str_t *name,
    ngx_rl_redis_role_e role)
{
    ngx_rl_redis_node_t  *node;

    node = ngx_calloc(sizeof(ngx_rl_redis_node_t), client->log);
    if (node == NULL) {
        return NULL;
    }

    node->client = client;
    node->reply.log = client->log;
    node->role = role;
    node->used_ms = ngx_current_msec;
    node->lost_ms = ngx_current_msec;

    ngx_rl_redis_conn_init(&node->conn, &client->net, client->owner, node);
    node->conn.lazy = (client->control && role != NGX_RL_REDIS_LISTENS);
    ngx_rl_redis_node_identify(node, host, name);

    return node;
}


ngx_rl_redis_node_t *
ngx_rl_redis_node_get(ngx_rl_redis_client_t *client,
    const ngx_rl_redis_host_t *host, ngx_rl_redis_role_e role)
{
    u_char                data[NGX_RL_REDIS_NAME], *p;
    ngx_str_t             name;
    ngx_rl_redis_node_t  *node;

    if (host->host.len == 0 || host->host.len > NGX_RL_REDIS_MAX_HOST) {
        return NULL;
    }

    /* the host comes first: "10.0.0.1:6379", "::1 6379", "/run/redis" */

    p = ngx_cpymem(data, host->host.data, host->host.len);

    if (host->port) {
        p = ngx_sprintf(p, "%c%ui", ngx_strlchr(data, p, ':') ? ' ' : ':',
                        (ngx_uint_t) host->port);
    }

    name.data = data;
    name.len = p - data;

    node = ngx_rl_redis_node_find(client, &name, role);

    if (node) {
        return node;
    }

    node = (role == NGX_RL_REDIS_DATA)
           ? ngx_rl_redis_node_at(client, host) : NULL;

    if (node) {

        /* a seed's other spelling: all workers shall mean the same place */

        if (node->owned == 0) {
            ngx_rl_redis_node_identify(node, host, &name);
        }

        return node;
    }

    if (client->nnodes == NGX_RL_REDIS_MAX_NODES) {
        return NULL;
    }

    node = ngx_rl_redis_node_new(client, host, &name, role);
    if (node == NULL) {
        return NULL;
    }

    ngx_queue_insert_tail(&client->nodes, &node->queue);
    client->nnodes++;

    /* all workers of a fleet may start at once: with TLS not all connect so */

    if (role == NGX_RL_REDIS_ASKS_MASTER
        || (!node->conn.lazy
            && ((client->topology.slots && !client->topology.mapped)
                || !(client->redis->tls.on || client->redis->reloaded))))
    {
        ngx_rl_redis_conn_begin(&node->conn);

    } else if (!node->conn.lazy) {
        ngx_rl_redis_conn_begin_soon(&node->conn);
    }

    return node;
}


void
ngx_rl_redis_node_free(ngx_rl_redis_node_t *node)
{
    ngx_rl_redis_conn_free(&node->conn);

    if (node->reader) {
        ngx_rl_redis_reader_free(node->reader, &node->reply);
    }

    ngx_queue_remove(&node->queue);
    node->client->nnodes--;

    ngx_free(node);
}


void
ngx_rl_redis_node_up(ngx_rl_redis_node_t *node)
{
    if (node->place && !node->stranger && !node->client->control) {
        atomic_store(&node->place->up_ms, ngx_current_msec);
    }
}


void
ngx_rl_redis_nodes_keep(ngx_rl_redis_client_t *client)
{
    ngx_rl_redis_node_t    *node;
    ngx_rl_redis_shared_t  *shared;

    static const ngx_str_t  map = ngx_string(NGX_RL_REDIS_MAP_PLACE);

    shared = client->redis->shared;

    if (client->map_place) {
        client->map_place = ngx_rl_redis_place(shared, &map);
    }

    node = NULL;

    while (ngx_rl_redis_node_next(client, &node)) {
        if (node->role != NGX_RL_REDIS_ASKS_MASTER) {
            node->place = ngx_rl_redis_place(shared, &node->conn.name);
        }

        if (node->conn.state == NGX_RL_REDIS_UP) {
            ngx_rl_redis_node_up(node);
        }
    }
}


void
ngx_rl_redis_node_known(ngx_rl_redis_node_t *node)
{
    ngx_uint_t  was;

    was = node->stranger;

    node->stranger = (node->map_id[0] && node->own_id[0]
                      && ngx_memcmp(node->map_id, node->own_id,
                                    NGX_RL_SLOT_MAP_ID)
                         != 0);

    if (node->stranger || was) {
        node->conn.unfit = node->stranger;
    }

    /* its calls end with the connection, and none is kept for the next one */

    if (node->stranger && (!was || node->conn.lazy)) {
        node->conn.good = 0;
        ngx_rl_redis_conn_break(&node->conn, 0, NGX_RL_REDIS_STRANGER);
    }
}


void
ngx_rl_redis_log(ngx_rl_redis_client_t *client, ngx_rl_log_limit_t *limit,
    ngx_msec_t interval_ms, ngx_uint_t level, ngx_err_t err, const char *fmt,
    ...)
{
    char     note[NGX_RL_LOG_NOTE];
    u_char   text[NGX_RL_REDIS_LOG_TEXT], *last;
    va_list  args;

    if (!ngx_rl_log_due(limit, ngx_current_msec, interval_ms, note)) {
        return;
    }

    va_start(args, fmt);
    last = ngx_vslprintf(text, text + sizeof(text), fmt, args);
    va_end(args);

    ngx_log_error(level, client->log, err, "ratelimit redis \"%V\": %*s%s",
                  &client->redis->name, (size_t) (last - text), text, note);
}


void
ngx_rl_redis_node_log(ngx_rl_redis_node_t *node, ngx_rl_redis_line_e line,
    ngx_err_t err, const char *what, const char *how, const ngx_str_t *why)
{
    uint32_t               hash;
    ngx_msec_t             interval_ms;
    _Atomic uint32_t      *said;
    ngx_rl_log_limit_t    *limit;
    ngx_rl_redis_place_t  *place;

    place = node->place;
    limit = place ? &place->errors[line] : &node->lines;
    said = place ? &place->said[line] : &node->said;

    hash = ngx_crc32_short((u_char *) how, ngx_strlen(how))
           ^ ngx_crc32_short(why->data, why->len) ^ (uint32_t) err;

    interval_ms = NGX_RL_LOG_MS;

    /* another reason is news, as soon as there may be a line at all */

    if (ngx_current_msec - atomic_load(&limit->written_ms) < interval_ms
        || atomic_exchange(said, hash) == hash)
    {
        if (node->role == NGX_RL_REDIS_ASKS_MASTER) {
            interval_ms = NGX_RL_REDIS_SENTINEL_REMIND_MS;

        } else if (place && ngx_rl_breaker_state(&place->breaker)
                            == NGX_RL_BREAKER_OPEN)
        {
            interval_ms = NGX_RL_REDIS_NODE_REMIND_MS;
        }
    }

    ngx_rl_redis_log(node->client, limit, interval_ms, NGX_LOG_ERR, err,
                     "%s%V%s%V", what, &node->conn.name, how, why);
}


/*
 * The error's text, but not the arguments of a command that Redis does not
 * know, nor the password wherever it stands.
 */
ngx_str_t
ngx_rl_redis_node_error(ngx_rl_redis_node_t *node,
    u_char buf[NGX_RL_REDIS_ERROR_TEXT])
{
    ngx_str_t   text;
    ngx_str_t  *password;

    text = ngx_rl_redis_error_text(&node->reply, buf);
    password = &ngx_rl_redis_login(node)->password;

    if (text.len && password->len
        && memmem(node->reply.text, node->reply.text_len, password->data,
                  password->len))
    {
        text = ngx_rl_redis_error_word(&node->reply);
    }

    if (text.len == 0) {
        ngx_str_set(&text, "something unexpected");
    }

    return text;
}


void
ngx_rl_redis_node_log_reply(ngx_rl_redis_node_t *node, const char *command)
{
    u_char  buf[NGX_RL_REDIS_ERROR_TEXT];
    char       how[sizeof(" answered SENTINEL GET-MASTER-ADDR-BY-NAME with ")];
    ngx_str_t  text;

    text = ngx_rl_redis_node_error(node, buf);

    *ngx_snprintf((u_char *) how, sizeof(how) - 1, " answered %s with ",
                  command) = 0;

    ngx_rl_redis_node_log(node, NGX_RL_REDIS_LINE_REPLY, 0, "", how, &text);
}
