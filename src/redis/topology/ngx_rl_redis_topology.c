/*
 * A worker's slot map: the node of each hash slot, the addresses that a node
 * names, and which worker asks for a new map, when, and whom. The map stands in
 * the memory that the workers of the gateway share, and so does the right to
 * ask for another: one worker asks, all take what it was answered. So a gateway
 * asks once a second at most, whatever happens; before there is any map, once
 * in 100 ms.
 *
 * A worker that wants a map looks at that memory every 100 ms until a question
 * that was asked later has been answered. A Cluster is asked each minute, too,
 * and Sentinels all the time.
 */

#include "ngx_rl_redis_client.h"
#include "ngx_rl_text.h"

/* after nginx's headers, which say what libc offers */
#include <hiredis/hiredis.h>

#define NGX_RL_REDIS_REFRESH_MS  1000
#define NGX_RL_REDIS_FIRST_MS    100   /* while there is no map */
#define NGX_RL_REDIS_NEXT_MS     10    /* and a call waits for it, or the node
                                          asked is gone */
#define NGX_RL_REDIS_LOOK_MS     100
#define NGX_RL_REDIS_RENEW_MS    60000
#define NGX_RL_REDIS_ANEW_MS     600000
#define NGX_RL_REDIS_KEEP_MS     50    /* while an answer comes */

#define ngx_rl_redis_is_up(node)                                              \
    ((node)->role == NGX_RL_REDIS_DATA                                        \
     && (node)->conn.state == NGX_RL_REDIS_UP                                 \
     && !(node)->stranger)


/* A node that the configuration names has the addresses known from there. */
static ngx_rl_redis_node_t *
ngx_rl_redis_named(ngx_rl_redis_client_t *client,
    const ngx_rl_slot_node_t *named)
{
    ngx_uint_t           i;
    ngx_rl_redis_host_t  host, *hosts;

    ngx_memzero(&host, sizeof(ngx_rl_redis_host_t));

    host.host.data = (u_char *) named->host;
    host.host.len = named->len;
    host.port = named->port;

    hosts = client->redis->hosts.elts;

    for (i = 0; i < client->redis->hosts.nelts; i++) {

        if (client->redis->mode == NGX_RL_REDIS_CLUSTER
            && hosts[i].port == host.port
            && hosts[i].host.len == host.host.len
            && ngx_strncasecmp(hosts[i].host.data, host.host.data,
                               host.host.len)
               == 0)
        {
            host.naddrs = hosts[i].naddrs;
            host.addrs = hosts[i].addrs;
        }
    }

    return ngx_rl_redis_node_get(client, &host, NGX_RL_REDIS_DATA);
}


void
ngx_rl_redis_slot_set(ngx_rl_redis_client_t *client, ngx_uint_t slot,
    ngx_rl_redis_node_t *node)
{
    if (client->topology.slots[slot]) {
        client->topology.slots[slot]->owned--;
    }

    if (node) {
        node->owned++;
    }

    client->topology.slots[slot] = node;
}


/*
 * Has the right to ask begin anew, unless it is no more as it was found. It is
 * the time of the last question: so it comes back by itself when its owner
 * dies. 0: nobody has it.
 */
static ngx_uint_t
ngx_rl_redis_right_set(ngx_rl_redis_client_t *client, uint64_t found_ms,
    uint64_t now_ms)
{
    if (!atomic_compare_exchange_strong(&client->redis->shared->asked_ms,
                                        &found_ms, now_ms))
    {
        return 0;
    }

    client->topology.right_ms = now_ms;

    return 1;
}


static ngx_uint_t
ngx_rl_redis_asks(ngx_rl_redis_client_t *client)
{
    return client->topology.wanted
           || (client->redis->mode == NGX_RL_REDIS_SENTINEL
               && !client->control);
}


static ngx_msec_t
ngx_rl_redis_interval(ngx_rl_redis_client_t *client)
{
    return ngx_rl_blob_newest(client->redis->shared->map)
           ? NGX_RL_REDIS_REFRESH_MS : NGX_RL_REDIS_FIRST_MS;
}


/*
 * When to ask next: a while after the last question, and the worker that asked
 * last comes first again.
 */
static uint64_t
ngx_rl_redis_topology_due(ngx_rl_redis_client_t *client)
{
    uint64_t                  asked, due_ms;
    ngx_msec_t                interval;
    ngx_rl_redis_topology_t  *t;

    t = &client->topology;
    asked = atomic_load(&client->redis->shared->asked_ms);

    if (asked == 0) {
        return t->due_ms;
    }

    interval = ngx_rl_redis_interval(client);
    due_ms = asked + interval + client->jitter % (interval / 10);

    if (asked != t->right_ms) {
        due_ms += interval / 10;
    }

    return ngx_max(due_ms, t->due_ms);
}


/* Whether a part of the answer has come. */
static ngx_uint_t
ngx_rl_redis_question_arrives(ngx_rl_redis_client_t *client)
{
    ngx_rl_redis_call_t  *question;

    question = client->topology.question;

    return question
           && question->node->reply.bytes
           && ngx_rl_redis_conn_head(&question->node->conn)
              == &question->request;
}


void
ngx_rl_redis_topology_wait(ngx_rl_redis_client_t *client)
{
    uint64_t                  due_ms;
    ngx_msec_t                delay;
    ngx_rl_redis_topology_t  *t;

    t = &client->topology;

    if (ngx_exiting || !ngx_rl_redis_asks(client)) {
        return;
    }

    due_ms = ngx_rl_redis_topology_due(client);
    delay = due_ms > ngx_current_msec ? due_ms - ngx_current_msec : 1;

    if (t->wanted) {
        delay = ngx_min(delay, NGX_RL_REDIS_LOOK_MS);
    }

    if (ngx_rl_redis_question_arrives(client)) {
        delay = NGX_RL_REDIS_KEEP_MS;
    }

    if (!t->mapped && !ngx_queue_empty(&client->unmapped)) {
        delay = ngx_min(delay, NGX_RL_REDIS_NEXT_MS);
    }

    /* nginx leaves a timer as it is for a change below 300 ms */

    if (t->timer.timer_set) {
        ngx_del_timer(&t->timer);
    }

    ngx_add_timer(&t->timer, delay);
}


void
ngx_rl_redis_refresh(ngx_rl_redis_client_t *client)
{
    ngx_rl_redis_topology_t  *t;

    t = &client->topology;

    if (t->slots == NULL || ngx_exiting) {
        return;
    }

    t->wanted_ms = ngx_current_msec;

    if (!t->mapped
        && t->state != NGX_RL_REDIS_ANSWERED
        && t->question == NULL
        && t->right_ms
        && ngx_rl_redis_right_set(client, t->right_ms, 0))
    {
        /* the node that was asked is gone: another one is asked soon */

        t->due_ms = ngx_current_msec + NGX_RL_REDIS_NEXT_MS;

    } else if (t->wanted && t->timer.timer_set) {
        return;

    } else if (!ngx_rl_redis_asks(client)) {

        /* the workers of all gateways see the same event at once */

        t->due_ms = ngx_current_msec + ngx_random()
                      % (ngx_rl_redis_interval(client) / 10);
    }

    t->wanted = 1;
    ngx_rl_redis_topology_wait(client);
}


/*
 * Lets go of the nodes that own no slots, and has those that are DOWN and do
 * connect again. An owner that stays DOWN: a failover is on its way, a new map
 * is wanted.
 */
static void
ngx_rl_redis_map_settle(ngx_rl_redis_client_t *client)
{
    ngx_rl_redis_node_t  *node;

    node = NULL;

    while (ngx_rl_redis_node_next(client, &node)) {
        if (node->role != NGX_RL_REDIS_DATA) {
            continue;
        }

        if (node->owned == 0) {
            ngx_rl_redis_conn_release(&node->conn);
            continue;
        }

        if (client->control) {
            continue;
        }

        ngx_rl_redis_conn_retry(&node->conn);

        if (node->conn.state == NGX_RL_REDIS_DOWN) {
            ngx_rl_redis_refresh(client);
        }
    }
}


/* Makes the worker's slots those of the map. */
static void
ngx_rl_redis_map_apply(ngx_rl_redis_client_t *client,
    const ngx_rl_slot_map_t *map)
{
    ngx_uint_t            i, owner;
    ngx_rl_redis_node_t  *node, *nodes[1 + NGX_RL_SLOT_MAP_NODES];

    client->topology.moved = 0;
    client->topology.mapped = 1;

    nodes[0] = NULL;

    for (i = 0; i < map->nnodes; i++) {
        node = ngx_rl_redis_named(client, &map->nodes[i]);
        nodes[i + 1] = node;

        /* too many, or no memory: the same map may do better later */

        if (node == NULL) {
            client->topology.moved = 1;
            continue;
        }

        ngx_memcpy(node->map_id, map->nodes[i].id, sizeof(node->map_id));

        if (node->own_id[0]) {
            ngx_rl_redis_node_known(node);
        }
    }

    for (i = 0; i < NGX_RL_CLUSTER_SLOTS; i++) {
        owner = map->owner[i];
        ngx_rl_redis_slot_set(client, i, nodes[owner]);
    }

    i = NGX_RL_CLUSTER_SLOTS - map->nslots;

    if (i && i != client->topology.uncovered && !client->control) {
        ngx_rl_redis_log(client, &client->redis->shared->uncovered,
                         NGX_RL_LOG_MS, NGX_LOG_ERR, 0,
                         "%ui hash slots have no node, requests whose "
                         "counters are there are degraded", i);
    }

    client->topology.uncovered = i;

    ngx_rl_redis_map_settle(client);
}


static void
ngx_rl_redis_map_take(ngx_rl_redis_client_t *client)
{
    ngx_uint_t            taken;
    ngx_rl_blob_t        *blob;
    ngx_rl_slot_map_t    *map;
    ngx_rl_blob_entry_t   entry;

    map = ngx_alloc(sizeof(ngx_rl_slot_map_t), client->log);
    if (map == NULL) {
        return;
    }

    blob = client->redis->shared->map;

    /* where a map was overwritten meanwhile, there is a newer one */

    do {
        client->topology.number = ngx_rl_blob_newest(blob);

        taken = ngx_rl_blob_find(blob, client->topology.number, &entry)
                && ngx_rl_blob_copy(blob, &entry, (u_char *) map);

    } while (!taken && client->topology.number);

    if (taken) {
        ngx_rl_redis_map_apply(client, map);
    }

    ngx_free(map);
}


void
ngx_rl_redis_topology_look(ngx_rl_redis_client_t *client)
{
    if (ngx_rl_blob_newest(client->redis->shared->map)
        != client->topology.number)
    {
        ngx_rl_redis_map_take(client);
    }
}


/* Takes what another worker, or this one, was answered since. */
static void
ngx_rl_redis_topology_notice(ngx_rl_redis_client_t *client)
{
    uint64_t                  answered;
    ngx_rl_redis_topology_t  *t;

    t = &client->topology;

    /* first the time, then the map that belongs to it, or a later one */

    answered = atomic_load(&client->redis->shared->answered_ms);

    ngx_rl_redis_topology_look(client);

    if (answered == t->answered_ms) {
        return;
    }

    t->answered_ms = answered;

    /* asked before the last thing happened, it may know nothing of it */

    if (answered <= t->wanted_ms) {
        return;
    }

    t->wanted = !t->mapped;

    if (t->moved) {
        ngx_rl_redis_map_take(client);
    }

    ngx_rl_redis_map_settle(client);
}


/*
 * The sentinel to ask: an open connection is kept, a connection to one takes no
 * calls and has no breaker. next: the one before did not answer, or knew
 * nothing. NULL where none can be connected to now.
 */
static ngx_rl_redis_node_t *
ngx_rl_redis_sentinel_from(ngx_rl_redis_client_t *client, ngx_uint_t next)
{
    ngx_uint_t                i, n;
    ngx_rl_redis_node_t      *node;
    ngx_rl_redis_host_t      *hosts;
    ngx_rl_redis_topology_t  *t;

    t = &client->topology;
    hosts = client->redis->hosts.elts;
    n = client->redis->hosts.nelts;

    t->sentinel += next;

    for (i = 0; i < n; i++) {
        t->sentinel %= n;

        node = ngx_rl_redis_node_get(client, &hosts[t->sentinel],
                                     NGX_RL_REDIS_ASKS_MASTER);

        if (node && node->conn.state != NGX_RL_REDIS_DOWN) {
            return node;
        }

        t->sentinel++;
    }

    return NULL;
}


/* The one moment at which the gateway asks. */
static void
ngx_rl_redis_question_send(ngx_rl_redis_client_t *client,
    ngx_rl_redis_node_t *node)
{
    ngx_str_t                 args[3];
    ngx_rl_redis_topology_t  *t;

    t = &client->topology;

    /* it may have been sent as soon as node came up */

    if (t->state != NGX_RL_REDIS_TURN) {
        return;
    }

    t->state = NGX_RL_REDIS_ASKED;

    if (!ngx_rl_redis_right_set(client, t->right_ms, ngx_current_msec)) {
        return;
    }

    t->asked_ms = ngx_current_msec;
    t->wanted_ms = ngx_current_msec - 1;

    node->used_ms = ngx_current_msec;

    if (node->role == NGX_RL_REDIS_ASKS_MASTER) {
        ngx_str_set(&args[0], "SENTINEL");
        ngx_str_set(&args[1], "GET-MASTER-ADDR-BY-NAME");
        args[2] = client->redis->master;

        t->question = ngx_rl_redis_command(node, NGX_RL_REDIS_MASTER, args, 3);

    } else {
        ngx_str_set(&args[0], "CLUSTER");
        ngx_str_set(&args[1], "SLOTS");

        t->question = ngx_rl_redis_command(node, NGX_RL_REDIS_SLOTS, args, 2);
    }

    if (t->question) {
        ngx_rl_redis_count(client->redis->shared->refreshes);
    }
}


/*
 * A node to ask, UP, another one each time. If no node is UP, connects to the
 * seeds: a seed that the old map does not know may tell the new one. NULL: none
 * is UP yet.
 */
static ngx_rl_redis_node_t *
ngx_rl_redis_cluster_from(ngx_rl_redis_client_t *client)
{
    ngx_uint_t            i, n, from, up;
    ngx_rl_redis_node_t  *node, *stranger;
    ngx_rl_redis_host_t  *hosts;

    up = 0;
    node = NULL;

    while (ngx_rl_redis_node_next(client, &node)) {
        up += ngx_rl_redis_is_up(node);
    }

    /* the workers' lists are much alike, so the node asks all in turn */

    from = atomic_load(&client->redis->shared->refreshes);

    if (up) {
        n = from % up;
        node = NULL;

        while (ngx_rl_redis_node_next(client, &node)) {
            if (ngx_rl_redis_is_up(node) && n-- == 0) {
                break;
            }
        }

        return node;
    }

    hosts = client->redis->hosts.elts;
    n = client->redis->hosts.nelts;
    stranger = NULL;

    for (i = 0; i < n; i++) {
        node = ngx_rl_redis_node_get(client, &hosts[(from % n + i) % n],
                                     NGX_RL_REDIS_DATA);

        if (node && client->control) {
            ngx_rl_redis_conn_retry(&node->conn);
        }

        if (node && node->conn.state == NGX_RL_REDIS_UP) {
            stranger = node;
        }
    }

    return stranger;
}


/* Takes the right to ask, and asks. */
static void
ngx_rl_redis_question(ngx_rl_redis_client_t *client)
{
    int64_t                   passed, interval;
    uint64_t                  asked;
    ngx_uint_t                next;
    ngx_rl_redis_node_t      *node;
    ngx_rl_redis_topology_t  *t;

    t = &client->topology;

    interval = (int64_t) ngx_rl_redis_interval(client);
    asked = atomic_load(&client->redis->shared->asked_ms);
    passed = (int64_t) (ngx_current_msec - asked);

    /*
     * Below 0: this worker read the clock some time ago. Far below: the clock
     * has started anew.
     */

    if (asked && passed < interval && passed > -NGX_RL_REDIS_ANEW_MS) {
        t->due_ms = ngx_current_msec + interval - ngx_max(passed, 0);
        return;
    }

    if (!ngx_rl_redis_right_set(client, asked, ngx_current_msec)) {
        t->due_ms = ngx_current_msec + interval;
        return;
    }

    next = (t->state != NGX_RL_REDIS_ANSWERED);
    t->state = NGX_RL_REDIS_TURN;

    node = (client->redis->mode == NGX_RL_REDIS_SENTINEL)
           ? ngx_rl_redis_sentinel_from(client, next)
           : ngx_rl_redis_cluster_from(client);

    /* one that is not UP yet is asked when it is */

    if (node && node->conn.state == NGX_RL_REDIS_UP) {
        ngx_rl_redis_question_send(client, node);
    }
}


void
ngx_rl_redis_topology_tick(ngx_rl_redis_client_t *client)
{
    ngx_rl_redis_topology_t  *t;

    t = &client->topology;

    if (ngx_exiting) {
        return;
    }

    ngx_rl_redis_topology_notice(client);

    if (!ngx_rl_redis_asks(client)) {
        return;
    }

    if (ngx_rl_redis_question_arrives(client)) {

        /* a large map is on its way: until it is here nobody asks again */

        (void) ngx_rl_redis_right_set(client, t->right_ms, ngx_current_msec);

    } else if (ngx_current_msec >= ngx_rl_redis_topology_due(client)) {
        ngx_rl_redis_question(client);
    }

    ngx_rl_redis_topology_wait(client);
}


ngx_int_t
ngx_rl_redis_topology_start(ngx_rl_redis_client_t *client)
{
    ngx_rl_redis_topology_t  *t;

    t = &client->topology;

    t->slots = ngx_calloc(NGX_RL_CLUSTER_SLOTS * sizeof(ngx_rl_redis_node_t *),
                          client->log);
    if (t->slots == NULL) {
        return NGX_ERROR;
    }

    ngx_rl_redis_topology_look(client);

    t->wanted = !t->mapped;
    ngx_rl_redis_topology_tick(client);

    return NGX_OK;
}


void
ngx_rl_redis_topology_renew(ngx_rl_redis_client_t *client)
{
    uint64_t  asked;

    asked = atomic_load(&client->redis->shared->asked_ms);

    /* another worker's clock may be a moment ahead */

    if (client->redis->mode == NGX_RL_REDIS_CLUSTER
        && (int64_t) (ngx_current_msec - asked)
           >= NGX_RL_REDIS_RENEW_MS)
    {
        ngx_rl_redis_refresh(client);
    }
}


void
ngx_rl_redis_topology_up(ngx_rl_redis_node_t *node)
{
    uint64_t                  asked;
    ngx_rl_redis_client_t    *client;
    ngx_rl_redis_topology_t  *t;

    client = node->client;
    t = &client->topology;

    if (t->slots == NULL
        || ngx_exiting
        || node->stranger
        || !ngx_rl_redis_asks(client)
        || node->role
           != (client->redis->mode == NGX_RL_REDIS_SENTINEL
               ? NGX_RL_REDIS_ASKS_MASTER : NGX_RL_REDIS_DATA))
    {
        return;
    }

    asked = atomic_load(&client->redis->shared->asked_ms);

    if (t->right_ms == asked && t->state == NGX_RL_REDIS_TURN) {
        ngx_rl_redis_question_send(client, node);

    } else if (!t->mapped) {
        ngx_rl_redis_question(client);
    }

    ngx_rl_redis_topology_wait(client);
}


/* The lock is free again when its owner has died: nginx' master does that. */
static void
ngx_rl_redis_map_publish(ngx_rl_redis_client_t *client,
    const ngx_rl_slot_map_t *map, ngx_uint_t current)
{
    uint64_t                  number;
    ngx_rl_blob_entry_t       entry, new;
    ngx_rl_redis_shared_t    *shared;
    ngx_rl_redis_topology_t  *t;

    static const u_char  key[NGX_RL_SIPHASH_KEY_BYTES];

    t = &client->topology;
    shared = client->redis->shared;

    new.version = 0;
    new.len = ngx_rl_slot_map_bytes(map);
    new.id = ngx_rl_siphash(key, (const u_char *) map, new.len, 1, 3).lo;

    if (!ngx_shmtx_trylock(&shared->slab->mutex)) {
        ngx_rl_redis_refresh(client);
        return;
    }

    number = ngx_rl_blob_newest(shared->map);

    /* asked later, another worker may have been answered already */

    if (number == 0
        || (current && atomic_load(&shared->answered_ms) <= t->asked_ms))
    {
        if (!ngx_rl_blob_find(shared->map, number, &entry)
            || entry.len != new.len || entry.id != new.id)
        {
            (void) ngx_rl_blob_publish(shared->map, &new, (const u_char *) map);
        }

        if (current) {
            atomic_store(&shared->answered_ms, t->asked_ms);
        }
    }

    ngx_shmtx_unlock(&shared->slab->mutex);

    ngx_rl_redis_topology_notice(client);
}


/* As it may be of a node that was reset, or whose name is not known yet. */
static void
ngx_rl_redis_map_useless(ngx_rl_redis_node_t *node)
{
    u_char                 buf[NGX_RL_REDIS_MAX_HOST + 64];
    ngx_str_t              why;
    ngx_rl_redis_reply_t  *reply;

    reply = &node->reply;

    why.data = buf;
    why.len = ngx_snprintf(buf, sizeof(buf), "%ui ranges, host \"%*s\"",
                           reply->nranges,
                           (size_t) (reply->nranges
                                     ? reply->ranges[0].host_len : 0),
                           reply->nranges ? reply->ranges[0].host : buf)
              - buf;

    ngx_rl_redis_node_log(node, NGX_RL_REDIS_LINE_REPLY, 0, "",
                       " answered CLUSTER SLOTS without a usable range: ",
                       &why);
}


static ngx_int_t
ngx_rl_redis_number(const u_char *text, size_t len, uint64_t min, uint64_t max)
{
    uint64_t  value;

    if (ngx_rl_number_parse(text, len, min, max, &value) != 0) {
        return NGX_ERROR;
    }

    return (ngx_int_t) value;
}


/* The address of node, for which an empty host stands. Returns its length. */
static size_t
ngx_rl_redis_own_host(ngx_rl_redis_node_t *node, u_char *text)
{
    if (node->conn.sockaddr.sockaddr.sa_family == AF_UNIX) {
        return 0;
    }

    return ngx_sock_ntop(&node->conn.sockaddr.sockaddr, node->conn.socklen,
                         text, NGX_SOCKADDR_STRLEN, 0);
}


/* The node that has that id, NULL where none is known. */
static ngx_rl_redis_node_t *
ngx_rl_redis_identified(ngx_rl_redis_client_t *client, const u_char *id)
{
    const u_char         *known;
    ngx_rl_redis_node_t  *node;

    node = NULL;

    while (ngx_rl_redis_node_next(client, &node)) {
        known = node->own_id[0] ? node->own_id : node->map_id;

        if (id[0] && ngx_memcmp(known, id, NGX_RL_SLOT_MAP_ID) == 0) {
            return node;
        }
    }

    return NULL;
}


/* Writes what node answered as a map. Returns how many ranges were of use. */
static ngx_uint_t
ngx_rl_redis_map_write(ngx_rl_redis_node_t *node, ngx_rl_slot_map_t *map)
{
    size_t                 len;
    u_char                *host, text[NGX_SOCKADDR_STRLEN];
    ngx_int_t              port;
    ngx_str_t             *master;
    ngx_uint_t             i, valid;
    ngx_rl_redis_node_t   *known;
    ngx_rl_redis_range_t  *range;

    static const u_char  none[NGX_RL_SLOT_MAP_ID];

    valid = 0;
    ngx_memzero(map, sizeof(ngx_rl_slot_map_t));

    /* a master, [host, port], owns all slots */

    if (node->role == NGX_RL_REDIS_ASKS_MASTER
        && node->reply.flat
        && node->reply.ntexts == 2
        && node->reply.n == 0)
    {
        master = node->reply.texts;
        port = ngx_rl_redis_number(master[1].data, master[1].len, 1, 65535);
        valid = ngx_rl_slot_map_add(map, 0, NGX_RL_CLUSTER_SLOTS - 1,
                                    master[0].data, master[0].len, port, none);
    }

    for (i = 0; i < node->reply.nranges; i++) {
        range = &node->reply.ranges[i];

        host = range->host;
        len = range->host_len;

        if (len == 0) {
            host = text;
            len = ngx_rl_redis_own_host(node, text);
        }

        /* while names spread: it is where it was */

        known = (len == 1 && host[0] == '?')
                ? ngx_rl_redis_identified(node->client, range->id) : NULL;

        if (known) {
            host = known->conn.host.host.data;
            len = known->conn.host.host.len;
            range->port = known->conn.host.port;
        }

        valid += ngx_rl_slot_map_add(map, range->first, range->last, host, len,
                                     range->port, range->id);
    }

    ngx_rl_slot_map_finish(map);

    return valid;
}


void
ngx_rl_redis_topology_reply(ngx_rl_redis_node_t *node, ngx_uint_t current)
{
    u_char                    buf[NGX_RL_REDIS_MAX_HOST];
    ngx_str_t                 master;
    ngx_uint_t                valid, sentinel;
    ngx_rl_slot_map_t        *map;
    ngx_rl_redis_client_t    *client;
    ngx_rl_redis_topology_t  *t;

    client = node->client;
    t = &client->topology;
    sentinel = (node->role == NGX_RL_REDIS_ASKS_MASTER);

    master.data = buf;
    master.len = ngx_snprintf(buf, sizeof(buf), "\"%V\"",
                              &client->redis->master)
                 - buf;

    /*
     * A late answer may be older than the map known since. It is still better
     * than no map.
     */

    if (current) {
        t->state = NGX_RL_REDIS_ANSWERED;

    } else if (t->mapped) {
        return;
    }

    valid = 0;

    if (node->reply.type == REDIS_REPLY_ARRAY) {

        map = ngx_alloc(sizeof(ngx_rl_slot_map_t), client->log);
        if (map == NULL) {
            return;
        }

        valid = ngx_rl_redis_map_write(node, map);

        if (valid) {
            ngx_rl_redis_map_publish(client, map, current);

        } else if (sentinel) {
            ngx_rl_redis_node_log(node, NGX_RL_REDIS_LINE_REPLY,
                                    0, "sentinel ",
                                    node->reply.flat && node->reply.ntexts != 2
                                        ? " knows no master "
                                        : " names no address for master ",
                                    &master);

        } else {
            ngx_rl_redis_map_useless(node);
        }

        ngx_free(map);

    } else {
        ngx_rl_redis_node_log_reply(node,
                          sentinel ? "SENTINEL GET-MASTER-ADDR-BY-NAME"
                                   : "CLUSTER SLOTS");
    }

    /* the next sentinel may know more */

    if (!valid && sentinel && t->state == NGX_RL_REDIS_ANSWERED) {
        t->state = NGX_RL_REDIS_ASKED;
    }
}


ngx_rl_redis_node_t *
ngx_rl_redis_redirect(ngx_rl_redis_node_t *node, ngx_uint_t *slot)
{
    u_char              *p, *last, *space, *colon;
    u_char               own[NGX_SOCKADDR_STRLEN];
    ngx_int_t            n, port;
    ngx_str_t            text;
    ngx_rl_slot_node_t   named;

    last = node->reply.text + node->reply.text_len;

    p = ngx_strlchr(node->reply.text, last, ' ');
    if (p == NULL) {
        return NULL;
    }

    space = ngx_strlchr(++p, last, ' ');
    if (space == NULL) {
        return NULL;
    }

    n = ngx_rl_redis_number(p, space - p, 0, NGX_RL_CLUSTER_SLOTS - 1);
    p = space + 1;

    /* an IPv6 address has colons of its own, without brackets */

    for (colon = last - 1; colon > p && *colon != ':'; colon--) { /* void */ }

    if (n == NGX_ERROR || colon < p || *colon != ':') {
        return NULL;
    }

    port = ngx_rl_redis_number(colon + 1, last - colon - 1, 1, 65535);

    if (port == NGX_ERROR) {
        return NULL;
    }

    text.data = p;
    text.len = colon - p;

    if (text.len == 0) {
        text.data = own;
        text.len = ngx_rl_redis_own_host(node, own);
    }

    if (!ngx_rl_slot_node_set(&named, text.data, text.len, port)) {
        return NULL;
    }

    *slot = n;

    return ngx_rl_redis_named(node->client, &named);
}
