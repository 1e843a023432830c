/*
 * When a client connects again, and how long an attempt may take. Many clients
 * lose their connections at the same moment and come back to a server that has
 * one thread. So pauses grow and have jitter. A handshake that waits for its
 * turn goes on: the server does its work in any case.
 */

#ifndef NGX_RL_BACKOFF_H_INCLUDED
#define NGX_RL_BACKOFF_H_INCLUDED

#include "ngx_rl_types.h"

#define NGX_RL_BACKOFF_MIN_MS        50
#define NGX_RL_BACKOFF_MAX_MS        1000

/* after handshakes that timed out: doubled up to this */
#define NGX_RL_BACKOFF_BUSY_MS       8000

/* an attempt takes so long at least; and its handshake, once it is running */
#define NGX_RL_BACKOFF_ATTEMPT_MS    500
#define NGX_RL_BACKOFF_HANDSHAKE_MS  5000

/* first connects that nobody waits for are spread over this time */
#define NGX_RL_BACKOFF_FIRST_MS      1000

/*
 * Milliseconds from the start of an attempt to the start of the next: half of
 * it is jitter. failures counts attempts in a row that failed, busy handshakes
 * in a row that timed out.
 */
uint32_t ngx_rl_backoff_pause_ms(uint32_t failures, uint32_t busy,
    uint32_t random);

#endif /* NGX_RL_BACKOFF_H_INCLUDED */
