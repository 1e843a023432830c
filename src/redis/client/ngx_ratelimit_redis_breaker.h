/*
 * The breakers of the Redis nodes at work.
 */

#ifndef NGX_RATELIMIT_REDIS_BREAKER_H_INCLUDED
#define NGX_RATELIMIT_REDIS_BREAKER_H_INCLUDED

#include "ngx_ratelimit_redis_call.h"

/*
 * Asks the breaker of place (or NULL: there is none). Returns whether to send
 * the call; else it was failed. credit is of the node.
 */
ngx_uint_t ngx_ratelimit_redis_breaker_ask(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_place_t *place, uint32_t *credit);

/*
 * Reports how a call ended that a breaker let pass, or a probe. For other
 * calls, and the second time, it does nothing. status is for the log.
 */
void ngx_ratelimit_redis_breaker_report(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_breaker_outcome_e outcome,
    ngx_ratelimit_redis_status_e status);

/*
 * The same of a call whose deadline has passed, of one that node could not
 * send, and of one whose connection broke: that says nothing of the node.
 */
void ngx_ratelimit_redis_breaker_expired(ngx_ratelimit_redis_call_t *call);
void ngx_ratelimit_redis_breaker_unsent(ngx_ratelimit_redis_call_t *call,
    ngx_ratelimit_redis_node_t *node);

#define ngx_ratelimit_redis_breaker_cut(call)                                 \
    (call)->place = ((call)->kind == NGX_RATELIMIT_REDIS_PROBE)               \
                    ? (call)->place : NULL

/* node has a reply; good: to what shows that the node does its work. */
void ngx_ratelimit_redis_breaker_heard(ngx_ratelimit_redis_node_t *node,
    ngx_uint_t good);

/* Once a second, and before a probe: what has no calls changes, too. */
void ngx_ratelimit_redis_breaker_settle(ngx_ratelimit_redis_node_t *node);

/*
 * A call on node's connection has timed out: breaks that where it has been
 * silent for long while the node answered other workers.
 */
void ngx_ratelimit_redis_breaker_doubt(ngx_ratelimit_redis_node_t *node);

/* The call was answered by something that is not about the node. */
void ngx_ratelimit_redis_breaker_neutral(ngx_ratelimit_redis_call_t *call);

/*
 * node's connection broke; and whether since then its breaker has closed:
 * another worker has found it well.
 */
void ngx_ratelimit_redis_breaker_lost(ngx_ratelimit_redis_node_t *node);
ngx_uint_t ngx_ratelimit_redis_breaker_recovered(
    ngx_ratelimit_redis_node_t *node);

/* There is a slot map: nobody waits for the first one any more. */
void ngx_ratelimit_redis_breaker_mapped(ngx_ratelimit_redis_client_t *client);

/*
 * The posted event: releases calls that wait for a node whose breaker is open.
 */
void ngx_ratelimit_redis_release_handler(ngx_event_t *ev);

#endif /* NGX_RATELIMIT_REDIS_BREAKER_H_INCLUDED */
