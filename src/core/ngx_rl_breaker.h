/*
 * A circuit breaker for one Redis node, in memory that processes share. While
 * it is closed calls are made. It opens on evidence that the node is gone or
 * refuses its work, and then nobody waits for the node.
 *
 *     CLOSED --- 3 calls without an answer in time, and nothing
 *                answered in time in between --------------------> SILENT,
 *                or FAILING if the node was heard while the last one waited
 *     CLOSED --- half of 20 calls and more in a second failed ---> FAILING,
 *                or SILENT if the last of them could not be sent or had no
 *                answer
 *     CLOSED --- no process is connected, and none can be -------> SILENT
 *     SILENT --- a good reply in time, or to its probe ----------> CLOSED
 *     FAILING -- a good reply to its probe, in time -------------> READMITS
 *     READMITS - all calls were let through for ten windows, and few
 *                of them failed ---------------------------------> CLOSED
 *     READMITS - the least share of the calls fails, or it is
 *                silent -----------------------------------------> FAILING
 *
 * SILENT and FAILING are open: no call is made but a probe from time to time.
 * A late reply shows that the node lives, not that calls would be answered in
 * time. So it has a silent node probed at once, and does no more.
 *
 * READMITS lets through a share of the calls. The share doubles with each good
 * window of a timeout and 50 ms. It grows slowly from half of what was too much
 * up to that, and faster again above. A window in which a tenth fails takes a
 * quarter of it.
 *
 * All of its state is two words, each changed by compare and swap: no lock is
 * held, so a process may die anywhere. Many processes share them. While calls
 * end well, they are seldom written: each process adds its good calls to the
 * state once in 10 ms, and all together write once in a millisecond that the
 * node was heard.
 */

#ifndef NGX_RL_BREAKER_H_INCLUDED
#define NGX_RL_BREAKER_H_INCLUDED

#include <stdatomic.h>

#include "ngx_rl_types.h"

#define NGX_RL_BREAKER_TIMEOUTS    3      /* in a row: it opens */
#define NGX_RL_BREAKER_CALLS       20     /* in a second: half of them */
#define NGX_RL_BREAKER_MIN_MS      125    /* until the first probe, */
#define NGX_RL_BREAKER_MAX_MS      1000   /* doubled up to this */

/* shares, and the credit of a caller */
#define NGX_RL_BREAKER_ALL         256

/* zeroed: closed */
typedef struct {
    _Atomic uint64_t  state;
    _Atomic uint64_t  heard;      /* when, and the timeouts in a row */
} ngx_rl_breaker_t;

typedef enum {
    NGX_RL_BREAKER_CLOSED = 0,
    NGX_RL_BREAKER_OPEN,
    NGX_RL_BREAKER_READMITS
} ngx_rl_breaker_state_e;

typedef enum {
    NGX_RL_BREAKER_GOOD = 0,
    NGX_RL_BREAKER_FAILED,       /* an error */
    NGX_RL_BREAKER_LATE,         /* no answer in time, but others came
                                    meanwhile */
    NGX_RL_BREAKER_UNREACHABLE,  /* it could not be sent */
    NGX_RL_BREAKER_TIMED_OUT     /* and nothing was heard meanwhile */
} ngx_rl_breaker_outcome_e;

/* Each but SAME by this very call, and in the order of the states. */
typedef enum {
    NGX_RL_BREAKER_SAME = 0,
    NGX_RL_BREAKER_CLOSED_NOW,
    NGX_RL_BREAKER_OPENED,
    NGX_RL_BREAKER_READMITS_NOW,
    NGX_RL_BREAKER_CHANGES        /* how many there are */
} ngx_rl_breaker_change_e;

/* Zeroed: one caller's good calls that the breaker does not count yet. */
typedef struct {
    uint32_t    since_ms;       /* it was written last */
    uint32_t    calls;
} ngx_rl_breaker_good_t;

/* The caller's knowledge. All processes share the clock; it is below 2^44. */
typedef struct {
    uint64_t    ms;             /* monotonic */
    uint32_t    timeout_ms;     /* of a call */
    uint32_t    random;         /* any number, for the jitter */
} ngx_rl_breaker_now_t;


/*
 * Whether to make a call. credit is the caller's own, from 0 to ALL - 1, and
 * is changed: by it a share of the calls is even. Returns 0: make it; else the
 * milliseconds after which to ask again.
 */
uint64_t ngx_rl_breaker_ask(ngx_rl_breaker_t *breaker,
    const ngx_rl_breaker_now_t *now, uint32_t *credit);

/*
 * Whether to send a probe. Returns 0: this caller shall, and tell what becomes
 * of it; else the milliseconds after which to ask again. A probe that nobody
 * tells of for lost_ms is followed by another.
 */
uint64_t ngx_rl_breaker_probe(ngx_rl_breaker_t *breaker, uint64_t now_ms,
    uint64_t lost_ms);

/*
 * Reports the outcome of a call or of a probe. One of all processes gets each
 * change. good is the caller's own, of this breaker.
 */
ngx_rl_breaker_change_e ngx_rl_breaker_report(ngx_rl_breaker_t *breaker,
    ngx_rl_breaker_good_t *good, ngx_rl_breaker_outcome_e outcome,
    const ngx_rl_breaker_now_t *now);
ngx_rl_breaker_change_e ngx_rl_breaker_probed(ngx_rl_breaker_t *breaker,
    int good, const ngx_rl_breaker_now_t *now);

/* To be called once a second: what has no calls changes, too. */
ngx_rl_breaker_change_e ngx_rl_breaker_settle(
    ngx_rl_breaker_t *breaker, const ngx_rl_breaker_now_t *now);

/* How the node has answered. */
typedef enum {
    NGX_RL_BREAKER_REPLY_LATE = 0, /* or to nothing that has a time */
    NGX_RL_BREAKER_REPLY_ERROR,    /* in time */
    NGX_RL_BREAKER_REPLY_GOOD      /* in time: it has done its work */
} ngx_rl_breaker_reply_e;

ngx_rl_breaker_change_e ngx_rl_breaker_heard(ngx_rl_breaker_t *breaker,
    ngx_rl_breaker_reply_e reply, uint64_t now_ms);

/*
 * A late reply came: whether a probe is due by that, as none was sent since the
 * breaker opened.
 */
int ngx_rl_breaker_hasten(ngx_rl_breaker_t *breaker, uint64_t now_ms);

/* No process is connected to the node, and this one's attempt has failed. */
ngx_rl_breaker_change_e ngx_rl_breaker_gone(
    ngx_rl_breaker_t *breaker, const ngx_rl_breaker_now_t *now);

/* Whether the node was heard after that moment, by anybody. */
int ngx_rl_breaker_lives(ngx_rl_breaker_t *breaker, uint64_t since_ms);

/* For the status and the log. */
ngx_rl_breaker_state_e ngx_rl_breaker_state(ngx_rl_breaker_t *breaker);


/*
 * When a client connects again, and how long an attempt may take. Many clients
 * lose their connections at the same moment and come back to a server that has
 * one thread. So pauses grow and have jitter. A handshake that waits for its
 * turn goes on: the server does its work in any case.
 */

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

#endif /* NGX_RL_BREAKER_H_INCLUDED */
