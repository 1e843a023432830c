/*
 * The nodes of a client: each is known by the host and port that the
 * configuration or another node has named. Whoever names one gets the node that
 * there is, also where it was known by another name, or a new one.
 */

#include "ngx_ratelimit_redis_client.h"
#include "ngx_ratelimit_redis_error.h"
#include "ngx_ratelimit_redis_node.h"
#include "ngx_ratelimit_redis_resolve.h"


static u_char *ngx_ratelimit_redis_node_name(u_char *p,
    const ngx_ratelimit_redis_host_t *host);
static ngx_ratelimit_redis_node_t *ngx_ratelimit_redis_node_find(
    ngx_ratelimit_redis_client_t *client, const ngx_str_t *name,
    ngx_uint_t sentinel);
static ngx_ratelimit_redis_node_t *ngx_ratelimit_redis_node_at(
    ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_redis_host_t *host);
static ngx_ratelimit_redis_node_t *ngx_ratelimit_redis_node_new(
    ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_redis_host_t *host, const ngx_str_t *name,
    ngx_uint_t sentinel);
static void ngx_ratelimit_redis_node_identify(
    ngx_ratelimit_redis_node_t *node, const ngx_ratelimit_redis_host_t *host,
    const ngx_str_t *name);


ngx_ratelimit_redis_node_t *
ngx_ratelimit_redis_node_get(ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_redis_host_t *host, ngx_uint_t sentinel)
{
    u_char                       data[NGX_RATELIMIT_REDIS_NAME];
    ngx_str_t                    name;
    ngx_ratelimit_redis_node_t  *node;

    if (host->host.len == 0
        || host->host.len > NGX_RATELIMIT_REDIS_MAX_HOST)
    {
        return NULL;
    }

    name.data = data;
    name.len = ngx_ratelimit_redis_node_name(data, host) - data;

    node = ngx_ratelimit_redis_node_find(client, &name, sentinel);

    if (node) {
        return node;
    }

    node = sentinel ? NULL : ngx_ratelimit_redis_node_at(client, host);

    if (node) {

        /* a seed's other spelling: all workers shall mean the same place */

        if (node->owned == 0) {
            ngx_ratelimit_redis_node_identify(node, host, &name);
        }

        return node;
    }

    if (client->nnodes == NGX_RATELIMIT_REDIS_MAX_NODES) {
        return NULL;
    }

    node = ngx_ratelimit_redis_node_new(client, host, &name, sentinel);
    if (node == NULL) {
        return NULL;
    }

    ngx_queue_insert_tail(&client->nodes, &node->queue);
    client->nnodes++;

    /* all workers of a fleet may start at once: with TLS not all connect so */

    if (sentinel
        || (!client->net.lazy
            && ((client->topology.slots && !client->topology.mapped)
                || !(client->redis->tls.on || client->redis->reloaded))))
    {
        ngx_ratelimit_redis_conn_begin(&node->conn);

    } else if (!client->net.lazy) {
        ngx_ratelimit_redis_conn_begin_soon(&node->conn);
    }

    return node;
}


/* The host comes first: "10.0.0.1:6379", "::1 6379", "/run/redis". */

static u_char *
ngx_ratelimit_redis_node_name(u_char *p,
    const ngx_ratelimit_redis_host_t *host)
{
    u_char  *colon;

    p = ngx_cpymem(p, host->host.data, host->host.len);

    if (host->port == 0) {
        return p;
    }

    colon = ngx_strlchr(host->host.data, host->host.data + host->host.len,
                        ':');

    return ngx_sprintf(p, "%c%ui", colon ? ' ' : ':',
                       (ngx_uint_t) host->port);
}


static ngx_ratelimit_redis_node_t *
ngx_ratelimit_redis_node_find(ngx_ratelimit_redis_client_t *client,
    const ngx_str_t *name, ngx_uint_t sentinel)
{
    ngx_queue_t                 *q;
    ngx_ratelimit_redis_node_t  *node;

    for (q = ngx_queue_head(&client->nodes);
         q != ngx_queue_sentinel(&client->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_ratelimit_redis_node_of(q);

        if (node->conn.name.len == name->len
            && node->sentinel == sentinel
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

static ngx_ratelimit_redis_node_t *
ngx_ratelimit_redis_node_at(ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_redis_host_t *host)
{
    socklen_t                    socklen;
    ngx_queue_t                 *q;
    ngx_sockaddr_t               sa;
    ngx_ratelimit_redis_node_t  *node;
    ngx_ratelimit_redis_state_e  least;

    socklen = ngx_ratelimit_redis_resolve_numeric(host, &sa);

    if (socklen == 0) {
        return NULL;
    }

    least = client->redis->tls.on ? NGX_RATELIMIT_REDIS_UP
                                  : NGX_RATELIMIT_REDIS_CONNECTING;

    for (q = ngx_queue_head(&client->nodes);
         q != ngx_queue_sentinel(&client->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_ratelimit_redis_node_of(q);

        if (node->conn.state >= least
            && !node->sentinel
            && ngx_cmp_sockaddr(&node->conn.sockaddr.sockaddr,
                                node->conn.socklen, &sa.sockaddr, socklen, 1)
               == NGX_OK)
        {
            return node;
        }
    }

    return NULL;
}


static ngx_ratelimit_redis_node_t *
ngx_ratelimit_redis_node_new(ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_redis_host_t *host, const ngx_str_t *name,
    ngx_uint_t sentinel)
{
    ngx_ratelimit_redis_node_t  *node;

    node = ngx_calloc(sizeof(ngx_ratelimit_redis_node_t), client->log);
    if (node == NULL) {
        return NULL;
    }

    node->client = client;
    node->reply.log = client->log;
    node->sentinel = sentinel;
    node->used_ms = ngx_current_msec;
    node->lost_ms = ngx_current_msec;

    ngx_ratelimit_redis_conn_init(&node->conn, &client->net, client->owner,
                                  node);
    ngx_ratelimit_redis_node_identify(node, host, name);

    return node;
}


static void
ngx_ratelimit_redis_node_identify(ngx_ratelimit_redis_node_t *node,
    const ngx_ratelimit_redis_host_t *host, const ngx_str_t *name)
{
    ngx_ratelimit_redis_conn_set_host(&node->conn, host, name);

    if (!node->sentinel) {
        node->place = ngx_ratelimit_redis_place(node->client->redis->shared,
                                                &node->conn.name);
    }
}


void
ngx_ratelimit_redis_node_free(ngx_ratelimit_redis_node_t *node)
{
    ngx_ratelimit_redis_conn_free(&node->conn);

    if (node->reader) {
        ngx_ratelimit_redis_reader_free(node->reader, &node->reply);
    }

    ngx_queue_remove(&node->queue);
    node->client->nnodes--;

    ngx_free(node);
}


void
ngx_ratelimit_redis_nodes_keep(ngx_ratelimit_redis_client_t *client)
{
    ngx_queue_t                   *q;
    ngx_ratelimit_redis_node_t    *node;
    ngx_ratelimit_redis_shared_t  *shared;

    static const ngx_str_t  map = ngx_string(NGX_RATELIMIT_REDIS_MAP_PLACE);

    shared = client->redis->shared;

    if (client->map_place) {
        client->map_place = ngx_ratelimit_redis_place(shared, &map);
    }

    for (q = ngx_queue_head(&client->nodes);
         q != ngx_queue_sentinel(&client->nodes);
         q = ngx_queue_next(q))
    {
        node = ngx_ratelimit_redis_node_of(q);

        if (!node->sentinel) {
            node->place = ngx_ratelimit_redis_place(shared, &node->conn.name);
        }
    }
}


ngx_uint_t
ngx_ratelimit_redis_node_error_due(ngx_ratelimit_redis_node_t *node,
    ngx_ratelimit_redis_line_e line, char note[NGX_RATELIMIT_LOG_NOTE])
{
    return node->place
           ? ngx_ratelimit_redis_error_due(node->place, line, note)
           : (ngx_uint_t) ngx_ratelimit_log_due(&node->errors,
                              ngx_current_msec, NGX_RATELIMIT_LOG_MS, note);
}


void
ngx_ratelimit_redis_node_log_reply(ngx_ratelimit_redis_node_t *node,
    const char *command)
{
    char       note[NGX_RATELIMIT_LOG_NOTE];
    ngx_str_t  word;

    word = ngx_ratelimit_redis_error_word(&node->reply);

    if (word.len == 0) {
        ngx_str_set(&word, "something unexpected");
    }

    if (ngx_ratelimit_redis_node_error_due(node,
                                       NGX_RATELIMIT_REDIS_LINE_REPLY, note))
    {
        ngx_log_error(NGX_LOG_ERR, node->client->log, 0,
                      "ratelimit redis \"%V\": %V answered %s with %V%s",
                      &node->client->redis->name, &node->conn.name, command,
                      &word, note);
    }
}
