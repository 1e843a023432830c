/*
 * sync=async: a gateway's ledger of one counter. Requests are decided at once,
 * by what Redis said last and what this gateway has spent since; Redis is told
 * behind. A debit always succeeds: what is not there is owed in Redis, up to
 * one capacity, and all gateways wait until it has come back. So no call is
 * repeated, and each is caused by a request.
 *
 * The caller holds the lock of the ledger, which lies in the table of leases,
 * and makes the calls.
 */

#ifndef NGX_RL_ASYNC_H_INCLUDED
#define NGX_RL_ASYNC_H_INCLUDED

#include "ngx_rl_lease.h"

/*
 * In shared memory, zeroed when it is made. Instants are of the clock of now_us
 * (monotonic, < 2^51), those in ms are its lower 32 bits. tb and window are the
 * counter with all that this gateway has spent.
 */
typedef struct {
    uint64_t  busy_us;      /* until then it says something; first: the table
                               of leases reads it */
    union {
        ngx_rl_token_bucket_t  tb;
        struct {
            uint64_t  end_us;       /* when it equals a fresh one;
                                       fixed_window: its end */
            int32_t   left;         /* below 0: owed */
            uint32_t  capacity;     /* that left is of */
        } window;
    };
    int32_t   owed;         /* spent, and Redis was not told; below 0: it came
                               back, and Redis was not told */
    uint32_t  began_ms;     /* of windows: the counter is this one since */
    uint32_t  since_ms;     /* something is owed since */
    uint32_t  asked_ms;     /* when the last call was made */
    uint32_t  answered_ms;  /* when Redis last answered */
    uint32_t  denied_cost;  /* of windows: Redis is to say, or has, when it can
                               pay so much; 0: nothing is denied */
    uint32_t  retry_ms;     /* then; of use if named */
    uint16_t  mark;         /* of the limit */
    unsigned  asking:1;     /* a call is under way; for a second at most */
    unsigned  answered:1;   /* what Redis has said still counts */
    unsigned  named:1;      /* Redis has named retry_ms */
    unsigned  bucket:1;     /* not a window */
} ngx_rl_async_t;

/* What a call tells Redis: one of them, or nothing. */
typedef struct {
    int32_t   debit;        /* below 0: gives back */
    uint32_t  since_ms;     /* it was owed since */
    uint32_t  asked_ms;     /* of the call */
    uint32_t  look;         /* when so much can be paid */
    uint64_t  age_us;       /* of what it gives back */
} ngx_rl_async_call_t;


/*
 * Takes cost, 1 and more: PAID or DENIED, and the answer; or ASK: Redis has
 * said nothing (since forgot_us), and the gateway's own counter decides. What
 * that grants is told by spent(), with its answer.
 *
 * *ask is 1: the caller is to call Redis now, or SOON: it is to sweep from now
 * on, and its next sweep tells Redis of all that is spent until then.
 */
#define NGX_RL_ASYNC_SOON  2

ngx_rl_lease_e ngx_rl_async_take(ngx_rl_async_t *async,
    const ngx_rl_limit_t *limit, const ngx_rl_lease_env_t *env, uint32_t cost,
    ngx_rl_answer_t *answer, unsigned *ask);
void ngx_rl_async_spent(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, const ngx_rl_answer_t *answer,
    unsigned *ask);

/* What is left, for a request that costs nothing; the ledger stays. */
void ngx_rl_async_look(const ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, ngx_rl_answer_t *answer);

/*
 * charge: so many more are spent, whatever is left. give: so many that were
 * taken at taken_us come back; returns how many of them the ledger sees to, all
 * or none. The caller is to sweep, and tells Redis itself of the others.
 */
void ngx_rl_async_charge(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint32_t tokens);
uint32_t ngx_rl_async_give(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint64_t taken_us, uint32_t tokens);

/* Whether the caller, which sweeps under this limit, is to call Redis now. */
unsigned ngx_rl_async_due(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env);

/*
 * A call is made now: what it tells. It counts as told from here on; at most
 * one capacity, the rest with the next call. Nothing while another is under
 * way, unless all is set: then everything, since the worker ends.
 */
void ngx_rl_async_call(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, unsigned all, ngx_rl_async_call_t *call);

/* The call of asked_us was answered; or it surely has not run. */
void ngx_rl_async_answered(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, uint64_t asked_us,
    const ngx_rl_async_call_t *call, const ngx_rl_answer_t *answer);
void ngx_rl_async_failed(ngx_rl_async_t *async, const ngx_rl_limit_t *limit,
    const ngx_rl_lease_env_t *env, const ngx_rl_async_call_t *call);

/* As ngx_rl_lease_lost(), of an answer to this call. */
unsigned ngx_rl_async_lost(const ngx_rl_async_t *async,
    const ngx_rl_limit_t *limit, const ngx_rl_lease_env_t *env,
    uint64_t asked_us, const ngx_rl_async_call_t *call,
    const ngx_rl_answer_t *answer);

#endif /* NGX_RL_ASYNC_H_INCLUDED */
