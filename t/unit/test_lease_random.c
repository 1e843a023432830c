/*
 * Leases against Redis, at random: two nodes with two workers each, whose
 * clocks lag, spend what Redis (the algorithms of src/core) has debited. Calls
 * take their time, requests give back, workers sweep.
 *
 * What is admitted was debited before, whatever happens. So a fixed window
 * admits no more than its limit, an aligned sliding one too, and a bucket no
 * more than its capacity and what it fills with.
 */

#include "lease.h"

#define ROUNDS   250
#define LENGTH   3000                       /* ms of a round */
#define EPOCH    ((uint64_t) 1800000000000000)
#define TIMEOUT  50                         /* ms a call takes at most */
#define NODES    2
#define WORKERS  2
#define CALLS    4096
#define QUEUE    64
#define WINDOWS  64

typedef struct {
    int64_t   come;         /* ms: in Redis, then at the worker; -1: free */
    int64_t   asked;
    unsigned  node;
    unsigned  worker;
    unsigned  answered;     /* is on its way back */
    uint32_t  back;         /* gives back, nothing else */
    int64_t   age_ms;
    ask_t     ask;
    answer_t  answer;
} call_t;

typedef struct {
    unsigned  asking;
    unsigned  n;
    uint32_t  queue[QUEUE];
    uint32_t  cost;
    int64_t   lag;
} worker_t;

typedef struct {
    lease_t   lease;
    worker_t  workers[WORKERS];
    uint64_t  in;           /* what came to the lease */
    uint64_t  out;          /* and left it: paid, swept */
} node_t;

/* of the round */
static limit_t                       limit;
static state_t                       counter;   /* in Redis */
static node_t                        nodes[NODES];
static call_t                        calls[CALLS];
static unsigned                      ncalls;    /* of them ever used */
static uint64_t                      admitted, before;
static uint64_t                      admitted_in[WINDOWS];
static unsigned                      share_of_returns;


static call_t *
call_new(unsigned node, unsigned worker, int64_t ms)
{
    unsigned  i;

    for (i = 0; i < ncalls && calls[i].come != -1; i++) { /* void */ }

    assert_true(i < CALLS);
    ncalls += (i == ncalls);

    memset(&calls[i], 0, sizeof(call_t));
    calls[i].node = node;
    calls[i].worker = worker;
    calls[i].asked = ms;
    calls[i].come = ms + (rnd(8) ? 1 : 1 + rnd(TIMEOUT / 2 - 1));

    return &calls[i];
}


/* As the engine says it: to a window, at least so long ago. */
static void
give_back(unsigned node, int64_t ms, int64_t age_ms, uint32_t tokens)
{
    call_t *call = call_new(node, 0, ms);
    call->back = tokens;
    call->age_ms = age_ms + (limit.rate.capacity ? 0 : TIMEOUT);
}


static void
redis_run(call_t *call, int64_t ms)
{
    uint64_t now = EPOCH + ms * 1000 + 500;

    if (call->back) {
        state_give(&counter, &limit, now, now - call->age_ms * 1000,
                   call->back);
        return;
    }

    call->answer = state_take(&counter, &limit, now, call->ask.cost,
                              call->ask.want);

    if (call->answer.retry_us == 0 && call->ask.ahead) {
        uint32_t ahead = call->answer.remaining / call->ask.share;
        ahead = ahead < call->ask.ahead ? ahead : call->ask.ahead;

        if (ahead) {
            uint32_t granted = call->answer.granted;
            call->answer = state_take(&counter, &limit, now, 1, ahead);
            call->answer.granted += granted;
        }
    }

    /* as the wire has it */

    call->answer.reset_us += 999 - (call->answer.reset_us + 999) % 1000;
    call->answer.retry_us += 999 - (call->answer.retry_us + 999) % 1000;
}


static unsigned
window_of(int64_t ms)
{
    return (EPOCH + ms * 1000) / limit.window_us - EPOCH / limit.window_us;
}


static void
admit(unsigned node, int64_t ms, int64_t lag, uint32_t cost)
{
    nodes[node].out += cost;

    if (rnd(100) < share_of_returns) {
        /* another counter of the request denied */

        env_t env = at(ms - lag);
        uint32_t kept = rnd(2) ? ngx_rl_ledger_give(&nodes[node].lease, &limit,
                                                     &env, env.now_us, cost)
                               : 0;
        nodes[node].in += kept;

        if (kept == 0) {
            give_back(node, ms, TIMEOUT, cost);
        }

        return;
    }

    admitted += cost;

    /* within the lag of a window's end it may be either's */

    if (limit.rate.capacity == 0 && window_of(ms) == window_of(ms - lag)) {
        admitted_in[window_of(ms)] += cost;
    }
}


static void
worker_ask(unsigned node, unsigned worker, int64_t ms, unsigned ahead)
{
    ask_t  ask;

    node_t *n = &nodes[node];
    worker_t *w = &n->workers[worker];

    if (w->asking || (w->n == 0 && !ahead)) {
        return;
    }

    env_t env = at(ms - w->lag);
    env.gateways = NODES;

    ngx_rl_ledger_ask(&n->lease, &limit, &env,
                      w->n ? w->queue[0] : 0, w->cost, &ask);

    if (ask.debit) {
        n->out += (uint32_t) -ask.debit;
        give_back(node, ms, (uint32_t) (env.now_us / 1000)
                            - n->lease.answered_ms, (uint32_t) -ask.debit);
    }

    if (ask.cost == 0 && ask.ahead == 0) {
        return;
    }

    w->asking = 1;
    call_t *call = call_new(node, worker, ms);
    call->ask = ask;
    call->asked = ms - w->lag;
}


static void
queue_shift(worker_t *w)
{
    w->cost -= w->queue[0];
    w->n--;
    memmove(w->queue, w->queue + 1, w->n * sizeof(w->queue[0]));
}


static void
worker_answered(call_t *call, int64_t ms)
{
    answer_t  answer;

    node_t *n = &nodes[call->node];
    worker_t *w = &n->workers[call->worker];
    w->asking = 0;

    env_t env = at(ms - w->lag);
    uint32_t tokens = call->answer.granted;

    if (ngx_rl_ledger_fill(&n->lease, &limit, &env, AT_US(call->asked),
                          &call->ask, &call->answer))
    {
        n->in += tokens;
        tokens = 0;

        while (w->n && ngx_rl_ledger_pay(&n->lease, &limit, &env,
                                        w->queue[0], &answer))
        {
            admit(call->node, ms, w->lag, w->queue[0]);
            queue_shift(w);
        }
    }

    if (tokens) {
        /* of a window that is over: here they are not admitted either */

        give_back(call->node, ms, ms - w->lag - call->asked, tokens);
    }

    if (call->answer.retry_us && w->n) {
        w->n = 0;
        w->cost = 0;
    }

    worker_ask(call->node, call->worker, ms, 0);
}


static void
request(unsigned node, unsigned worker, int64_t ms, uint32_t cost)
{
    answer_t         answer;
    unsigned         ahead;
    ngx_rl_ledger_e  rc;

    node_t *n = &nodes[node];
    worker_t *w = &n->workers[worker];
    env_t env = at(ms - w->lag);
    env.gateways = NODES;

    memset(&answer, 0xa5, sizeof(answer));
    rc = ngx_rl_ledger_take(&n->lease, &limit, &env, cost, &answer, &ahead);

    if (rc == PAID) {
        assert_true(answer.remaining <= limit.capacity);
        admit(node, ms, w->lag, cost);

    } else if (rc == DENIED) {
        assert_true(answer.remaining < cost);
        assert_true(answer.retry_us > 0);

    } else if (w->n < QUEUE) {
        w->queue[w->n++] = cost;
        w->cost += cost;
    }

    worker_ask(node, worker, ms, rc == PAID && ahead);
}


static void
sweep_node(unsigned node, unsigned worker, int64_t ms)
{
    ask_t  says;

    node_t *n = &nodes[node];
    env_t env = at(ms - n->workers[worker].lag);

    if (limit.algorithm == NGX_RL_FIXED_WINDOW
        && n->lease.fresh_us < env.now_us + TIMEOUT * 1000)
    {
        return;
    }

    (void) ngx_rl_ledger_sweep(&n->lease, &limit, &env, rnd(16) == 0, &says);
    uint32_t back = (uint32_t) -says.debit;

    if (back) {
        n->out += back;
        give_back(node, ms, (uint32_t) (env.now_us / 1000)
                            - n->lease.answered_ms, back);
    }
}


static void
step(int64_t ms, unsigned load, uint32_t costs)
{
    for (unsigned i = 0; i < NODES; i++) {
        for (unsigned k = 0; k < WORKERS; k++) {
            nodes[i].workers[k].lag = rnd(8) ? 0 : rnd(4);
        }
    }

    for (unsigned i = 0; i < ncalls; i++) {
        if (calls[i].come == -1 || calls[i].come > ms) {
            continue;
        }

        if (calls[i].answered) {
            calls[i].come = -1;
            worker_answered(&calls[i], ms);
            continue;
        }

        redis_run(&calls[i], ms);

        if (calls[i].back) {
            calls[i].come = -1;
            continue;
        }

        calls[i].answered = 1;
        calls[i].come = ms + (rnd(8) ? 1 : 1 + rnd(TIMEOUT / 2 - 1));
    }

    for (unsigned i = rnd(load + 1); i; i--) {
        request(rnd(3) ? 0 : 1, rnd(WORKERS), ms, 1 + rnd(costs));
    }

    for (unsigned i = 0; i < NODES; i++) {
        for (unsigned k = 0; k < WORKERS; k++) {
            if ((ms + 37 * (i * WORKERS + k)) % 100 == 0) {
                sweep_node(i, k, ms);
            }
        }

        assert_true(nodes[i].lease.tokens <= limit.capacity);
        assert_true(nodes[i].out + nodes[i].lease.tokens <= nodes[i].in);
    }
}


static void
play(ngx_rl_algorithm_e algorithm, uint64_t round_seed)
{
    uint64_t  tokens, windows[] = { 300000, 1000000, 1700000 };

    unit_seed = round_seed;
    tokens = 1 + rnd(rnd(2) ? 20 : 3000);
    limit = limit_of(algorithm, tokens, windows[rnd(3)]);

    memset(&counter, 0, sizeof(counter));
    memset(nodes, 0, sizeof(nodes));
    memset(admitted_in, 0, sizeof(admitted_in));

    ncalls = 0;
    admitted = 0;
    share_of_returns = rnd(2) ? 0 : 1 + rnd(40);
    unsigned load = 1 + rnd(8);
    unsigned costs = 1 + rnd(rnd(2) ? 1 : 3);

    for (int64_t ms = 0; ms < LENGTH; ms++) {
        /* bursts and silences */

        if (ms % 256 == 0) {
            before = rnd(4);
        }

        step(ms, before ? load : 0, costs);
    }

    if (limit.rate.capacity) {
        assert_true(admitted <= limit.capacity
                    + LENGTH * (uint64_t) 1000 * limit.rate.scale
                      / limit.rate.period_us);
        return;
    }

    for (unsigned i = 0; i < WINDOWS; i++) {
        if (admitted_in[i] > limit.capacity) {
            print_message("seed %llu, window %u of %u ms: %u of %u, "
                          "algorithm %u\n",
                          (unsigned long long) round_seed, i,
                          (unsigned) (limit.window_us / 1000),
                          (unsigned) admitted_in[i],
                          (unsigned) limit.capacity, limit.algorithm);
            fail();
        }
    }
}


static void
test_debited_before(void **state)
{
    uint64_t first = seed_set(1);

    for (unsigned i = 0; i < ROUNDS; i++) {
        play(NGX_RL_TOKEN_BUCKET, first + i);
        play(NGX_RL_FIXED_WINDOW, first + i);
        play(NGX_RL_SLIDING_WINDOW, first + i);
    }
}
