/*
 * Redis Cluster: the map from slots to connections, its refresh, and the
 * addresses that a node names.
 *
 * The refresh timer is set while a map is wanted and while one is waited for,
 * so there is one refresh at a time; when it fires before the answer came,
 * another node is asked.
 */

#include "ngx_ratelimit_redis_int.h"
#include "ngx_ratelimit_text.h"

#define NGX_RATELIMIT_REDIS_REFRESH_MS  1000
#define NGX_RATELIMIT_REDIS_FIRST_MS    100   /* while there is no map */
#define NGX_RATELIMIT_REDIS_NEXT_MS     10


static ngx_msec_t ngx_ratelimit_redis_refresh_interval(
    ngx_ratelimit_redis_client_t *client);
static ngx_ratelimit_redis_conn_t *ngx_ratelimit_redis_refresh_from(
    ngx_ratelimit_redis_client_t *client);
static void ngx_ratelimit_redis_seeds_connect(
    ngx_ratelimit_redis_client_t *client);
static ngx_uint_t ngx_ratelimit_redis_range_valid(
    const ngx_ratelimit_redis_range_t *range);
static void ngx_ratelimit_redis_slots_fill(ngx_ratelimit_redis_conn_t *from);
static ngx_uint_t ngx_ratelimit_redis_map_settle(
    ngx_ratelimit_redis_client_t *client);
static void ngx_ratelimit_redis_unmapped_route(
    ngx_ratelimit_redis_client_t *client);
static ngx_ratelimit_redis_conn_t *ngx_ratelimit_redis_node(
    ngx_ratelimit_redis_conn_t *from, u_char *host, size_t len,
    in_port_t port);
static ngx_int_t ngx_ratelimit_redis_number(const u_char *text, size_t len,
    uint64_t min, uint64_t max);


void
ngx_ratelimit_redis_refresh(ngx_ratelimit_redis_client_t *client)
{
    ngx_msec_t  passed, interval, jitter;

    if (client->slots == NULL || ngx_exiting) {
        return;
    }

    /* the first map: who was asked is gone, so ask another soon */

    if (!client->mapped && client->refresh == NULL) {

        if (client->refresh_timer.timer_set) {
            ngx_del_timer(&client->refresh_timer);
        }

        ngx_add_timer(&client->refresh_timer, NGX_RATELIMIT_REDIS_NEXT_MS);
        return;
    }

    if (client->refresh_timer.timer_set) {
        return;
    }

    interval = ngx_ratelimit_redis_refresh_interval(client);
    passed = ngx_current_msec - client->refreshed_ms;

    /* the workers of all nodes see the same event at once */

    jitter = ngx_random() % (interval / 10);

    ngx_add_timer(&client->refresh_timer,
                  (passed < interval ? interval - passed : 0) + jitter);
}


void
ngx_ratelimit_redis_refresh_handler(ngx_event_t *ev)
{
    ngx_ratelimit_redis_conn_t    *conn;
    ngx_ratelimit_redis_client_t  *client;
    static const ngx_str_t         text =
        ngx_string("*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n");

    client = ev->data;

    if (ngx_exiting) {
        return;
    }

    client->refresh = NULL;
    client->refreshed_ms = ngx_current_msec;

    /* set first: a connection that breaks below asks for a refresh */

    if (ev->timer_set) {
        ngx_del_timer(ev);
    }

    ngx_add_timer(ev, ngx_ratelimit_redis_refresh_interval(client));

    conn = ngx_ratelimit_redis_refresh_from(client);

    if (conn == NULL) {
        ngx_ratelimit_redis_seeds_connect(client);
        conn = ngx_ratelimit_redis_refresh_from(client);
    }

    if (conn == NULL) {
        return;
    }

    client->refresh = ngx_ratelimit_redis_conn_command(conn,
                                          NGX_RATELIMIT_REDIS_SLOTS, &text);
    if (client->refresh) {
        ngx_ratelimit_redis_count(client->redis->shared->refreshes);
    }
}


static ngx_msec_t
ngx_ratelimit_redis_refresh_interval(ngx_ratelimit_redis_client_t *client)
{
    return client->mapped ? NGX_RATELIMIT_REDIS_REFRESH_MS
                          : NGX_RATELIMIT_REDIS_FIRST_MS;
}


/*
 * A connection to ask: one that is up, else one that may come up. The list
 * is turned, so that the next refresh asks another node.
 */

static ngx_ratelimit_redis_conn_t *
ngx_ratelimit_redis_refresh_from(ngx_ratelimit_redis_client_t *client)
{
    ngx_queue_t                 *q;
    ngx_ratelimit_redis_conn_t  *conn, *found;

    found = NULL;

    for (q = ngx_queue_head(&client->conns);
         q != ngx_queue_sentinel(&client->conns);
         q = ngx_queue_next(q))
    {
        conn = ngx_queue_data(q, ngx_ratelimit_redis_conn_t, queue);

        if (conn->state == NGX_RATELIMIT_REDIS_UP) {
            found = conn;
            break;
        }

        if (conn->state != NGX_RATELIMIT_REDIS_DOWN && found == NULL) {
            found = conn;
        }
    }

    if (found) {
        ngx_queue_remove(&found->queue);
        ngx_queue_insert_tail(&client->conns, &found->queue);
    }

    return found;
}


static void
ngx_ratelimit_redis_seeds_connect(ngx_ratelimit_redis_client_t *client)
{
    ngx_uint_t                   i;
    ngx_ratelimit_redis_host_t  *hosts;

    hosts = client->redis->hosts.elts;

    for (i = 0; i < client->redis->hosts.nelts; i++) {
        (void) ngx_ratelimit_redis_conn_get(client, &hosts[i]);
    }
}


void
ngx_ratelimit_redis_slots_apply(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_uint_t                     i, valid;
    ngx_ratelimit_redis_reply_t   *reply;
    ngx_ratelimit_redis_client_t  *client;

    client = conn->client;
    reply = &conn->reply;
    valid = 0;

    for (i = 0; i < reply->nranges; i++) {
        valid += ngx_ratelimit_redis_range_valid(&reply->ranges[i]);
    }

    /* a node that was reset or never joined knows nothing: ask another */

    if (valid == 0) {
        ngx_ratelimit_redis_slots_refused(client);
        return;
    }

    if (client->refresh_timer.timer_set) {
        ngx_del_timer(&client->refresh_timer);
    }

    ngx_ratelimit_redis_slots_fill(conn);
    client->mapped = 1;

    if (ngx_ratelimit_redis_map_settle(client)) {
        ngx_ratelimit_redis_refresh(client);
    }

    ngx_ratelimit_redis_unmapped_route(client);
}


void
ngx_ratelimit_redis_slots_refused(ngx_ratelimit_redis_client_t *client)
{
    ngx_add_timer(&client->refresh_timer,
                  ngx_ratelimit_redis_refresh_interval(client));
}


static ngx_uint_t
ngx_ratelimit_redis_range_valid(const ngx_ratelimit_redis_range_t *range)
{
    return range->first >= 0
           && range->first <= range->last
           && range->last < NGX_RATELIMIT_CLUSTER_SLOTS
           && range->port > 0
           && range->port <= 65535;
}


static void
ngx_ratelimit_redis_slots_fill(ngx_ratelimit_redis_conn_t *from)
{
    int64_t                        slot, next;
    ngx_uint_t                     i;
    ngx_ratelimit_redis_conn_t    *conn;
    ngx_ratelimit_redis_range_t   *range;
    ngx_ratelimit_redis_client_t  *client;

    client = from->client;

    for (slot = 0; slot < NGX_RATELIMIT_CLUSTER_SLOTS; slot++) {
        ngx_ratelimit_redis_slot_set(client, slot, NULL);
    }

    for (i = 0; i < from->reply.nranges; i++) {
        range = &from->reply.ranges[i];

        if (!ngx_ratelimit_redis_range_valid(range)) {
            continue;
        }

        conn = ngx_ratelimit_redis_node(from, range->host, range->host_len,
                                        (in_port_t) range->port);
        next = range->last + 1;

        for (slot = range->first; slot < next; slot++) {
            ngx_ratelimit_redis_slot_set(client, slot, conn);
        }
    }
}


void
ngx_ratelimit_redis_slot_set(ngx_ratelimit_redis_client_t *client,
    ngx_uint_t slot, ngx_ratelimit_redis_conn_t *conn)
{
    if (client->slots[slot]) {
        client->slots[slot]->owned--;
    }

    if (conn) {
        conn->owned++;
    }

    client->slots[slot] = conn;
}


/*
 * Lets go of the connections that the map has no use for. Returns 1 when an
 * owner of slots is down: a failover is on its way, a new map is wanted.
 */

static ngx_uint_t
ngx_ratelimit_redis_map_settle(ngx_ratelimit_redis_client_t *client)
{
    ngx_uint_t                   down;
    ngx_queue_t                 *q;
    ngx_ratelimit_redis_conn_t  *conn;

    down = 0;

    for (q = ngx_queue_head(&client->conns);
         q != ngx_queue_sentinel(&client->conns);
         q = ngx_queue_next(q))
    {
        conn = ngx_queue_data(q, ngx_ratelimit_redis_conn_t, queue);

        if (conn->owned == 0) {
            ngx_ratelimit_redis_conn_release(conn);

        } else if (conn->state == NGX_RATELIMIT_REDIS_DOWN) {
            down = 1;
        }
    }

    return down;
}


static void
ngx_ratelimit_redis_unmapped_route(ngx_ratelimit_redis_client_t *client)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(&client->unmapped)) {
        q = ngx_queue_head(&client->unmapped);
        ngx_queue_remove(q);
        ngx_ratelimit_redis_route(
            ngx_queue_data(q, ngx_ratelimit_redis_call_t, queue));
    }
}


ngx_ratelimit_redis_conn_t *
ngx_ratelimit_redis_redirect(ngx_ratelimit_redis_conn_t *conn,
    ngx_uint_t *slot)
{
    u_char     *p, *last, *space, *colon;
    ngx_int_t   n, port;

    last = conn->reply.text + conn->reply.text_len;

    p = ngx_strlchr(conn->reply.text, last, ' ');
    if (p == NULL) {
        return NULL;
    }

    space = ngx_strlchr(++p, last, ' ');
    if (space == NULL) {
        return NULL;
    }

    n = ngx_ratelimit_redis_number(p, space - p, 0,
                                   NGX_RATELIMIT_CLUSTER_SLOTS - 1);
    p = space + 1;

    /* an IPv6 address has colons of its own, without brackets */

    for (colon = last - 1; colon > p && *colon != ':'; colon--) { /* void */ }

    if (n == NGX_ERROR || colon < p || *colon != ':') {
        return NULL;
    }

    port = ngx_ratelimit_redis_number(colon + 1, last - colon - 1, 1, 65535);

    if (port == NGX_ERROR) {
        return NULL;
    }

    *slot = n;

    return ngx_ratelimit_redis_node(conn, p, colon - p, (in_port_t) port);
}


/*
 * The connection to a host and port that from named. An empty host is the
 * one that from leads to.
 */

static ngx_ratelimit_redis_conn_t *
ngx_ratelimit_redis_node(ngx_ratelimit_redis_conn_t *from, u_char *host,
    size_t len, in_port_t port)
{
    u_char                      text[NGX_SOCKADDR_STRLEN];
    ngx_ratelimit_redis_host_t  node;

    ngx_memzero(&node, sizeof(ngx_ratelimit_redis_host_t));

    node.port = port;
    node.host.data = host;
    node.host.len = len;

    if (len == 0) {
        if (from->sockaddr.sockaddr.sa_family == AF_UNIX) {
            return NULL;
        }

        node.host.data = text;
        node.host.len = ngx_sock_ntop(&from->sockaddr.sockaddr,
                                      from->socklen, text, sizeof(text), 0);
    }

    return ngx_ratelimit_redis_conn_get(from->client, &node);
}


static ngx_int_t
ngx_ratelimit_redis_number(const u_char *text, size_t len, uint64_t min,
    uint64_t max)
{
    uint64_t  value;

    if (ngx_ratelimit_number_parse(text, len, min, max, &value) != 0) {
        return NGX_ERROR;
    }

    return (ngx_int_t) value;
}
