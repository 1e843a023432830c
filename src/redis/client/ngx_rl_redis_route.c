/*
 * A call's way to a node: the one that the slot map names, or that another node
 * has named; into its queue, where its breaker lets it.
 */

#include "ngx_rl_redis_client.h"

#define NGX_RL_REDIS_MAX_PENDING  65536    /* calls in a queue */
#define NGX_RL_REDIS_AGAIN_MS     5


void
ngx_rl_redis_call_queue(ngx_rl_redis_call_t *call, ngx_rl_redis_node_t *node)
{
    static const ngx_str_t  asking = ngx_string("ASKING");

    if (node->conn.state == NGX_RL_REDIS_DOWN) {
        ngx_rl_redis_refresh(node->client);

    } else if (node->vain && node->conn.state != NGX_RL_REDIS_UP) {

        /* a call has waited for it already, and in vain */

    } else if (node->stranger && !node->conn.lazy) {

        /* the server at its address is no node of the Cluster */

    } else if (node->conn.pending < NGX_RL_REDIS_MAX_PENDING) {

        /* the client of checks has its own renewed at once */

        if (node->client->control) {
            ngx_rl_redis_auth_renew(node);
        }

        if (!call->asking
            || ngx_rl_redis_command(node, NGX_RL_REDIS_ASKING,
                                    &asking, 1))
        {
            ngx_rl_redis_call_append(call, node);
            return;
        }
    }

    ngx_rl_redis_breaker_unsent(call, node);
    ngx_rl_redis_call_fail(call, NGX_RL_REDIS_UNREACHABLE);
}


void
ngx_rl_redis_call_send(ngx_rl_redis_call_t *call, ngx_rl_redis_node_t *node)
{
    ngx_uint_t  lazy;

    lazy = node->conn.lazy;

    /* another worker has found the node well */

    if (node->conn.state == NGX_RL_REDIS_DOWN
        && (lazy || ngx_rl_redis_breaker_recovered(node)))
    {
        ngx_rl_redis_conn_retry(&node->conn);
    }

    if ((call->kind == NGX_RL_REDIS_UNDO
         || call->kind == NGX_RL_REDIS_CONTROL)
        && (node->conn.state != NGX_RL_REDIS_DOWN || lazy))
    {
        call->place = NULL;
        ngx_rl_redis_call_queue(call, node);
        return;
    }

    if (ngx_rl_redis_breaker_ask(call, node->place, &node->credit)) {
        ngx_rl_redis_call_queue(call, node);
    }
}


static void
ngx_rl_redis_route_mapped(ngx_rl_redis_call_t *call)
{
    ngx_rl_redis_node_t    *node;
    ngx_rl_redis_client_t  *client;

    client = call->client;

    node = client->topology.slots
           ? client->topology.slots[call->slot]
           : ngx_rl_redis_node_of(ngx_queue_head(&client->nodes));

    if (node == NULL) {
        ngx_rl_redis_refresh(client);
        ngx_rl_redis_call_fail(call, NGX_RL_REDIS_UNREACHABLE);
        return;
    }

    ngx_rl_redis_call_send(call, node);
}


void
ngx_rl_redis_unmapped_route(ngx_rl_redis_client_t *client)
{
    ngx_queue_t  *q;

    if (!client->topology.mapped) {
        return;
    }

    ngx_rl_redis_breaker_mapped(client);

    while (!ngx_queue_empty(&client->unmapped)) {
        q = ngx_queue_head(&client->unmapped);
        ngx_queue_remove(q);
        ngx_rl_redis_route_mapped(ngx_rl_redis_call_of(q));
    }
}


static void
ngx_rl_redis_route(ngx_rl_redis_call_t *call)
{
    uint32_t                credit;
    ngx_uint_t              waiting;
    ngx_rl_redis_client_t  *client;

    client = call->client;

    if (client->topology.slots) {
        ngx_rl_redis_topology_look(client);
        ngx_rl_redis_unmapped_route(client);
    }

    if (client->topology.slots == NULL || client->topology.mapped) {
        ngx_rl_redis_route_mapped(call);
        return;
    }

    credit = 0;

    if (ngx_rl_redis_breaker_ask(call, client->map_place, &credit)) {
        waiting = !ngx_queue_empty(&client->unmapped);
        ngx_queue_insert_tail(&client->unmapped, &call->request.queue);

        if (!waiting) {
            ngx_rl_redis_topology_wait(client);
        }
    }
}


void
ngx_rl_redis_call_start(ngx_rl_redis_call_t *call,
    ngx_rl_redis_handler_pt handler, void *data)
{
    call->handler = handler;
    call->data = data;

    ngx_rl_redis_call_wait(call);
    ngx_rl_redis_route(call);
}


void
ngx_rl_redis_topology_handler(ngx_event_t *ev)
{
    ngx_rl_redis_client_t  *client;

    client = ev->data;

    ngx_rl_redis_topology_tick(client);
    ngx_rl_redis_unmapped_route(client);
}


void
ngx_rl_redis_again(ngx_rl_redis_call_t *call)
{
    ngx_rl_redis_client_t  *client;

    client = call->client;

    call->request.since_ms = ngx_current_msec;
    ngx_queue_insert_tail(&client->again, &call->request.queue);

    if (!client->again_timer.timer_set) {
        ngx_add_timer(&client->again_timer, NGX_RL_REDIS_AGAIN_MS);
    }
}


void
ngx_rl_redis_again_handler(ngx_event_t *ev)
{
    ngx_msec_t              waited;
    ngx_queue_t            *q;
    ngx_rl_redis_call_t    *call;
    ngx_rl_redis_client_t  *client;

    client = ev->data;

    while (!ngx_queue_empty(&client->again)) {
        q = ngx_queue_head(&client->again);
        call = ngx_rl_redis_call_of(q);
        waited = ngx_current_msec - call->request.since_ms;

        if (waited < NGX_RL_REDIS_AGAIN_MS) {
            ngx_add_timer(ev, NGX_RL_REDIS_AGAIN_MS - waited);
            return;
        }

        ngx_queue_remove(q);
        ngx_rl_redis_route(call);
    }
}
