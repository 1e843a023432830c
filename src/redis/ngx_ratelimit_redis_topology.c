/*
 * Who asks for a new map, and when. The map stands in the memory that the
 * workers of the node share, and so does the right to ask for another: one
 * worker asks, all take what it was told. So a node asks once a second at most,
 * whatever happens; before there is any map, once in 100 ms.
 *
 * A worker that wants a map (wanted) looks at that memory every 100 ms until a
 * question that was asked later has been answered. What a Sentinel knows is
 * asked for all the time.
 */

#include "ngx_ratelimit_redis_int.h"

/* after nginx's headers, which say what libc offers */
#include <hiredis/hiredis.h>

#define NGX_RATELIMIT_REDIS_REFRESH_MS  1000
#define NGX_RATELIMIT_REDIS_FIRST_MS    100   /* while there is no map */
#define NGX_RATELIMIT_REDIS_NEXT_MS     10    /* and a call waits for it, or
                                                 who was asked is gone */
#define NGX_RATELIMIT_REDIS_LOOK_MS     100
#define NGX_RATELIMIT_REDIS_KEEP_MS     50    /* while an answer comes */


static void ngx_ratelimit_redis_map_take(
    ngx_ratelimit_redis_client_t *client);
static void ngx_ratelimit_redis_map_publish(
    ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_slot_map_t *map, ngx_uint_t current);
static void ngx_ratelimit_redis_refresh_handler(ngx_event_t *ev);
static void ngx_ratelimit_redis_news(ngx_ratelimit_redis_client_t *client);
static void ngx_ratelimit_redis_ask(ngx_ratelimit_redis_client_t *client,
    ngx_uint_t again);
static void ngx_ratelimit_redis_question_send(
    ngx_ratelimit_redis_client_t *client, ngx_ratelimit_redis_conn_t *conn);
static ngx_uint_t ngx_ratelimit_redis_turn(
    ngx_ratelimit_redis_client_t *client);
static void ngx_ratelimit_redis_due(ngx_ratelimit_redis_client_t *client);
static void ngx_ratelimit_redis_refresh_timer(
    ngx_ratelimit_redis_client_t *client);
static ngx_uint_t ngx_ratelimit_redis_asks(
    ngx_ratelimit_redis_client_t *client);
static ngx_msec_t ngx_ratelimit_redis_interval(
    ngx_ratelimit_redis_client_t *client);

#define ngx_ratelimit_redis_board(client)  (&(client)->redis->shared->board)


ngx_int_t
ngx_ratelimit_redis_topology_start(ngx_ratelimit_redis_client_t *client)
{
    ngx_event_t  *ev;

    client->slots = ngx_calloc(NGX_RATELIMIT_CLUSTER_SLOTS
                               * sizeof(ngx_ratelimit_redis_conn_t *),
                               client->log);
    if (client->slots == NULL) {
        return NGX_ERROR;
    }

    ev = &client->refresh_timer;
    ev->data = client;
    ev->log = client->log;
    ev->handler = ngx_ratelimit_redis_refresh_handler;
    ev->cancelable = 1;

    ngx_ratelimit_redis_topology_look(client);

    client->wanted = !client->mapped;
    ngx_ratelimit_redis_refresh_handler(ev);

    return NGX_OK;
}


void
ngx_ratelimit_redis_topology_stop(ngx_ratelimit_redis_client_t *client)
{
    if (client->refresh_timer.timer_set) {
        ngx_del_timer(&client->refresh_timer);
    }

    if (client->slots) {
        ngx_free(client->slots);
        client->slots = NULL;
    }
}


void
ngx_ratelimit_redis_topology_look(ngx_ratelimit_redis_client_t *client)
{
    if (ngx_ratelimit_slot_board_head(ngx_ratelimit_redis_board(client))
        != client->head)
    {
        ngx_ratelimit_redis_map_take(client);
    }
}


static void
ngx_ratelimit_redis_map_take(ngx_ratelimit_redis_client_t *client)
{
    ngx_ratelimit_slot_map_t  *map;

    map = ngx_alloc(sizeof(ngx_ratelimit_slot_map_t), client->log);
    if (map == NULL) {
        return;
    }

    if (ngx_ratelimit_slot_board_read(ngx_ratelimit_redis_board(client), map,
                                      &client->head))
    {
        ngx_ratelimit_redis_map_apply(client, map);

    } else if (client->head) {

        /* whoever wrote it was stopped meanwhile, and went on: once more */

        ngx_ratelimit_redis_refresh(client);
    }

    ngx_free(map);
}


void
ngx_ratelimit_redis_topology_wait(ngx_ratelimit_redis_client_t *client)
{
    if (!ngx_exiting) {
        ngx_ratelimit_redis_refresh_timer(client);
    }
}


void
ngx_ratelimit_redis_refresh(ngx_ratelimit_redis_client_t *client)
{
    uint64_t    asked;
    ngx_msec_t  interval;

    if (client->slots == NULL || ngx_exiting) {
        return;
    }

    asked = atomic_load(&ngx_ratelimit_redis_board(client)->asked);
    interval = ngx_ratelimit_redis_interval(client);

    client->wanted_ms = ngx_current_msec;

    /* the first map: who was asked is gone, so another one is asked soon */

    if (!client->mapped && client->unanswered && client->refresh == NULL
        && (asked == client->asked_ms || asked == client->turn_ms))
    {
        client->turn_ms = asked;
        client->broke = 1;
        ngx_ratelimit_redis_refresh_timer(client);
        return;
    }

    if (client->wanted && client->refresh_timer.timer_set) {
        return;
    }

    /* the workers of all nodes see the same event at once */

    if (!ngx_ratelimit_redis_asks(client)) {
        client->seen_ms = asked;
        client->due_ms = ngx_max(asked + interval, ngx_current_msec)
                         + ngx_random() % (interval / 10);
    }

    client->wanted = 1;
    ngx_ratelimit_redis_refresh_timer(client);
}


static void
ngx_ratelimit_redis_refresh_handler(ngx_event_t *ev)
{
    ngx_uint_t                     again;
    ngx_ratelimit_redis_client_t  *client;

    client = ev->data;

    if (ngx_exiting) {
        return;
    }

    again = client->broke;
    client->broke = 0;

    ngx_ratelimit_redis_news(client);

    if (!ngx_ratelimit_redis_asks(client)) {
        return;
    }

    ngx_ratelimit_redis_due(client);

    if (again || ngx_current_msec >= client->due_ms) {
        ngx_ratelimit_redis_ask(client, again);
    }

    ngx_ratelimit_redis_refresh_timer(client);
}


/* Takes what another worker, or this one, was answered since. */

static void
ngx_ratelimit_redis_news(ngx_ratelimit_redis_client_t *client)
{
    uint64_t  answered;

    /* first the time, then the map that belongs to it, or a later one */

    answered = atomic_load(&ngx_ratelimit_redis_board(client)->answered);

    ngx_ratelimit_redis_topology_look(client);

    if (answered == client->answered_ms) {
        return;
    }

    client->answered_ms = answered;

    /* asked before the last thing happened, it may know nothing of it */

    if (answered <= client->wanted_ms) {
        return;
    }

    client->wanted = !client->mapped;

    if (client->strayed) {
        ngx_ratelimit_redis_map_take(client);
    }

    ngx_ratelimit_redis_map_settle(client);
}


/* again: the right is this worker's already, but who was asked is gone. */

static void
ngx_ratelimit_redis_ask(ngx_ratelimit_redis_client_t *client,
    ngx_uint_t again)
{
    ngx_ratelimit_redis_conn_t  *conn;

    /* a large map is on its way: until it is here nobody asks again */

    if (client->refresh && client->refresh->partly) {

        if (ngx_ratelimit_slot_board_keep(ngx_ratelimit_redis_board(client),
                                          client->kept_ms, ngx_current_msec))
        {
            client->kept_ms = ngx_current_msec;
            client->seen_ms = ngx_current_msec;
        }

        client->due_ms = ngx_current_msec + NGX_RATELIMIT_REDIS_KEEP_MS;
        return;
    }

    if (!(again && ngx_ratelimit_redis_turn(client))) {

        client->due_ms = ngx_ratelimit_slot_board_take(
                             ngx_ratelimit_redis_board(client),
                             ngx_current_msec,
                             ngx_ratelimit_redis_interval(client));

        if (client->due_ms) {
            client->due_ms += ngx_current_msec;
            return;
        }

        client->turn_ms = ngx_current_msec;
    }

    if (client->redis->mode == NGX_RATELIMIT_REDIS_SENTINEL) {
        conn = ngx_ratelimit_redis_sentinel_from(client, client->unanswered);

    } else {
        conn = ngx_ratelimit_redis_cluster_from(client);
    }

    client->unanswered = 1;

    /* one that is not UP yet is asked when it is */

    if (conn && conn->state == NGX_RATELIMIT_REDIS_UP) {
        ngx_ratelimit_redis_question_send(client, conn);
    }
}


/* The one moment at which the node asks. */

static void
ngx_ratelimit_redis_question_send(ngx_ratelimit_redis_client_t *client,
    ngx_ratelimit_redis_conn_t *conn)
{
    uint64_t   mine;
    ngx_str_t  args[3];

    mine = client->turn_ms;
    client->turn_ms = 0;

    /* it may have been sent as soon as conn came up */

    if (mine == 0
        || !ngx_ratelimit_slot_board_keep(ngx_ratelimit_redis_board(client),
                                          mine, ngx_current_msec))
    {
        return;
    }

    client->asked_ms = ngx_current_msec;
    client->kept_ms = ngx_current_msec;
    client->wanted_ms = ngx_current_msec - 1;

    conn->used_ms = ngx_current_msec;

    if (conn->sentinel) {
        ngx_str_set(&args[0], "SENTINEL");
        ngx_str_set(&args[1], "GET-MASTER-ADDR-BY-NAME");
        args[2] = client->redis->master;

        client->refresh = ngx_ratelimit_redis_conn_command(conn,
                                         NGX_RATELIMIT_REDIS_MASTER, args, 3);

    } else {
        ngx_str_set(&args[0], "CLUSTER");
        ngx_str_set(&args[1], "SLOTS");

        client->refresh = ngx_ratelimit_redis_conn_command(conn,
                                          NGX_RATELIMIT_REDIS_SLOTS, args, 2);
    }

    if (client->refresh) {
        ngx_ratelimit_redis_count(client->redis->shared->refreshes);
    }
}


void
ngx_ratelimit_redis_topology_up(ngx_ratelimit_redis_conn_t *conn)
{
    ngx_ratelimit_redis_client_t  *client;

    client = conn->client;

    if (client->slots == NULL
        || ngx_exiting
        || !ngx_ratelimit_redis_asks(client)
        || conn->sentinel
           != (client->redis->mode == NGX_RATELIMIT_REDIS_SENTINEL))
    {
        return;
    }

    if (ngx_ratelimit_redis_turn(client)) {
        ngx_ratelimit_redis_question_send(client, conn);

    } else if (!client->mapped) {
        ngx_ratelimit_redis_ask(client, 0);
    }

    ngx_ratelimit_redis_refresh_timer(client);
}


/* Whether this worker has the right to ask and has not used it. */

static ngx_uint_t
ngx_ratelimit_redis_turn(ngx_ratelimit_redis_client_t *client)
{
    return client->turn_ms
           && client->turn_ms
              == atomic_load(&ngx_ratelimit_redis_board(client)->asked);
}


void
ngx_ratelimit_redis_topology_reply(ngx_ratelimit_redis_conn_t *conn,
    ngx_uint_t current)
{
    ngx_ratelimit_slot_map_t      *map;
    ngx_ratelimit_redis_client_t  *client;

    client = conn->client;

    /*
     * An answer that was given up is late, and maybe older than what is known
     * since; it is still better than no map.
     */

    if (current) {
        client->unanswered = 0;

    } else if (client->mapped) {
        return;
    }

    if (conn->reply.type != REDIS_REPLY_ARRAY) {
        client->unanswered = conn->sentinel;
        ngx_ratelimit_redis_log_reply(conn,
                                      conn->sentinel
                                          ? "SENTINEL GET-MASTER-ADDR-BY-NAME"
                                          : "CLUSTER SLOTS");
        return;
    }

    map = ngx_alloc(sizeof(ngx_ratelimit_slot_map_t), client->log);
    if (map == NULL) {
        return;
    }

    if (ngx_ratelimit_redis_map_write(conn, map)) {
        ngx_ratelimit_redis_map_publish(client, map, current);

    } else if (conn->sentinel) {
        client->unanswered = 1;
        ngx_ratelimit_redis_sentinel_refused(conn);
    }

    ngx_free(map);
}


static void
ngx_ratelimit_redis_map_publish(ngx_ratelimit_redis_client_t *client,
    const ngx_ratelimit_slot_map_t *map, ngx_uint_t current)
{
    uint64_t                     head;
    ngx_ratelimit_slot_board_t  *board;

    board = ngx_ratelimit_redis_board(client);
    head = ngx_ratelimit_slot_board_head(board);

    /* asked later, another worker may have been answered already */

    if (head && (!current
                 || atomic_load(&board->answered) > client->asked_ms))
    {
        ngx_ratelimit_redis_news(client);
        return;
    }

    if (ngx_ratelimit_slot_board_publish(board, map, &head)
        && (head != client->head || client->strayed || !client->mapped))
    {
        client->head = head;
        ngx_ratelimit_redis_map_apply(client, map);
    }

    if (current) {
        atomic_store(&board->answered, client->asked_ms);
    }

    ngx_ratelimit_redis_news(client);
}


/* When to ask next: a while after whoever did last, who comes first again. */

static void
ngx_ratelimit_redis_due(ngx_ratelimit_redis_client_t *client)
{
    uint64_t    asked;
    ngx_msec_t  interval;

    asked = atomic_load(&ngx_ratelimit_redis_board(client)->asked);

    if (asked == client->seen_ms) {
        return;
    }

    interval = ngx_ratelimit_redis_interval(client);

    client->seen_ms = asked;
    client->due_ms = asked + interval + ngx_random() % (interval / 10);

    if (asked != client->asked_ms && asked != client->turn_ms) {
        client->due_ms += interval / 10;
    }
}


static void
ngx_ratelimit_redis_refresh_timer(ngx_ratelimit_redis_client_t *client)
{
    ngx_msec_t  delay;

    if (!ngx_ratelimit_redis_asks(client)) {
        return;
    }

    ngx_ratelimit_redis_due(client);

    delay = 1;

    if (client->due_ms > ngx_current_msec) {
        delay = client->due_ms - ngx_current_msec;
    }

    if (client->wanted) {
        delay = ngx_min(delay, NGX_RATELIMIT_REDIS_LOOK_MS);
    }

    if (client->broke
        || (!client->mapped && !ngx_queue_empty(&client->unmapped)))
    {
        delay = ngx_min(delay, NGX_RATELIMIT_REDIS_NEXT_MS);
    }

    /* nginx leaves a timer as it is for a change below 300 ms */

    if (client->refresh_timer.timer_set) {
        ngx_del_timer(&client->refresh_timer);
    }

    ngx_add_timer(&client->refresh_timer, delay);
}


static ngx_uint_t
ngx_ratelimit_redis_asks(ngx_ratelimit_redis_client_t *client)
{
    return client->wanted
           || (client->redis->mode == NGX_RATELIMIT_REDIS_SENTINEL
               && !client->lazy);
}


static ngx_msec_t
ngx_ratelimit_redis_interval(ngx_ratelimit_redis_client_t *client)
{
    return ngx_ratelimit_slot_board_head(ngx_ratelimit_redis_board(client))
           ? NGX_RATELIMIT_REDIS_REFRESH_MS : NGX_RATELIMIT_REDIS_FIRST_MS;
}
