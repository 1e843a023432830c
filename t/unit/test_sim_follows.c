/*
 * The simulator decides how exact leases are, with a model of what a worker
 * does (t/sim/refill.c). Here one script of requests runs through that model
 * and through src/engine itself, on one virtual clock, each with a counter of
 * its own in the same Redis: the calls and the decisions must be the same.
 */

#include "unit.h"

#include "ngx_rl_backend.h"
#include "ngx_rl_hash.h"
#include "ngx_rl_policy.h"

#include "nginx.h"
#include "node.h"

#include <sys/mman.h>

#define BASE_MS   1000000     /* the gateway's clock at the script's begin */
#define WAY_MS    2           /* of a call to Redis, and of its reply */
#define SLOW_MS   90          /* the same while the network is slow */
#define TABLE     (256 * 1024)
#define MOST      100000
#define TIMEOUT   100

enum { THE_ENGINE, THE_MODEL, WORLDS };

/* so many requests at this millisecond; each step_ms until end_ms */
typedef struct {
    uint64_t  at_ms;
    uint64_t  end_ms;
    uint64_t  step_ms;
    uint64_t  n;
} script_t;

typedef struct {
    uint64_t  at_ms;
    int64_t   cost;
    char      want[48];
} call_t;

/* of the engine: on its way to Redis and back */
typedef struct {
    ngx_rl_redis_handler_pt   handler;
    void                     *data;
    int64_t                   values[4];
    int64_t                   cost;
    char                      want[48];
    unsigned                  late:1;
    unsigned                  ended:1;
} flight_t;

typedef struct {
    ngx_rl_check_t            check;
    ngx_rl_client_t           client;
    ngx_rl_counter_t          counter;
    ngx_rl_remote_check_t     remote;
    ngx_rl_remote_client_t    remote_client;
    ngx_rl_remote_t           remote_counter;
    uint64_t                  number;
} request_t;

typedef struct {
    const char         *name;
    ngx_rl_algorithm_e  algorithm;
    ngx_rl_sync_e       sync;
} follows_t;

#define LEASE  NGX_RL_SYNC_LEASE
#define ASYNC  NGX_RL_SYNC_ASYNC

/* beside SIM_...: a call of the engine reaches Redis; nobody waits any more */
#define RUNS  ((sim_event_e) 100)
#define ENDS  ((sim_event_e) 101)
#define LATE  ((sim_event_e) 102)

static const script_t  script[] = {
    { 0, 600, 300, 1 },          /* too slow for a lease */
    { 1000, 1600, 5, 10 },       /* busy, then silent */
    { 2500, 2500, 1, 300 },      /* a burst */
    { 3000, 3400, 7, 3 },
    { 4100, 9000, 4, 8 },        /* spent, over a window's end and a refill */
    { 9500, 12500, 130, 1 },
    { 12600, 12700, 1, 2 },
    { 14000, 14000, 1, 1 },
    { 0, 0, 0, 0 }
};

/* nginx */
volatile ngx_msec_t     ngx_current_msec;
volatile ngx_time_t    *ngx_cached_time;
volatile ngx_cycle_t   *ngx_cycle;
ngx_rbtree_t            ngx_event_timer_rbtree;
ngx_uint_t              ngx_process = NGX_PROCESS_WORKER;

/* the simulator */
sim_world_t             sim;

static ngx_time_t               wall;
static ngx_cycle_t              cycle;
static ngx_log_t                log_nowhere;
static ngx_event_t             *timers[16];
static sim_heap_t               events[2];     /* others, of Redis */
static uint64_t                 nevents;       /* ever */
static call_t                   calls[WORLDS][MOST];
static size_t                   ncalls[WORLDS];
static u_char                   decided[WORLDS][MOST];
static uint64_t                 arrived_ns[MOST];
static uint64_t                 nrequests;

static ngx_rl_limiter_t  limiter;
static ngx_rl_redis_t    redis;
static ngx_rl_policy_t   policy;
static ngx_rl_rule_t     rule;
static request_t                requests[MOST];

static sim_node_t               node;
static sim_leased_t             leased;
static sim_refill_t             refill;
static sim_conn_t               conn;


static uint64_t
now_ms(void)
{
    return sim.now_ns / SIM_MS;
}


void
sim_push(uint64_t at_ns, sim_event_e kind, void *data, uint64_t n)
{
    sim_heap_push(&events[kind == RUNS || kind == ENDS
                          || kind == SIM_CALL_RUNS || kind == SIM_CALL_ENDS],
                  (sim_item_t) { at_ns, nevents++, kind, data, n });
}


/* What is on the way; slow, twice, so that replies come behind the timeout. */
static void
way_push(sim_event_e kind, void *data)
{
    uint64_t ms = now_ms();
    ms += (ms >= 1300 && ms < 1500) || (ms >= 6500 && ms < 7500) ? SLOW_MS
                                                                 : WAY_MS;
    sim_push(ms * SIM_MS, kind, data, 0);
}


static void
call_note(int world, int64_t cost, const char *want)
{
    assert_true(ncalls[world] < MOST);
    call_t *call = &calls[world][ncalls[world]++];
    call->at_ms = now_ms();
    call->cost = cost;
    strcpy(call->want, want);
}


/* nginx, as far as one counter's calls need it */

void
ngx_rbtree_insert(ngx_rbtree_t *tree, ngx_rbtree_node_t *n)
{
    size_t  i;

    if (tree == &ngx_event_timer_rbtree) {
        for (i = 0; timers[i]; i++) { /* void */ }
        assert_true(i < 15);
        timers[i] = ngx_rbtree_data(n, ngx_event_t, timer);
        return;
    }

    assert_ptr_equal(tree->root, tree->sentinel);
    n->left = tree->sentinel;
    n->right = tree->sentinel;
    tree->root = n;
}


void
ngx_rbtree_delete(ngx_rbtree_t *tree, ngx_rbtree_node_t *n)
{
    size_t  i;

    if (tree != &ngx_event_timer_rbtree) {
        assert_ptr_equal(tree->root, n);
        tree->root = tree->sentinel;
        return;
    }

    for (i = 0; timers[i] != ngx_rbtree_data(n, ngx_event_t, timer); i++) {
        assert_non_null(timers[i]);
    }

    do {
        timers[i] = timers[i + 1];
    } while (timers[i++]);
}


void
ngx_str_rbtree_insert_value(ngx_rbtree_node_t *temp, ngx_rbtree_node_t *n,
    ngx_rbtree_node_t *sentinel)
{
    fail();
}


ngx_str_node_t *
ngx_str_rbtree_lookup(ngx_rbtree_t *tree, ngx_str_t *name, uint32_t hash)
{
    if (tree->root == tree->sentinel) {
        return NULL;
    }

    ngx_str_node_t *n = (ngx_str_node_t *) tree->root;
    assert_memory_equal(n->str.data, name->data, name->len);

    return n;
}


/* the Redis client of the engine */

u_char *
ngx_rl_redis_write_bulk(u_char *p, const u_char *data, size_t len)
{
    p += sprintf((char *) p, "$%zu\r\n", len);
    p = ngx_cpymem(p, data, len);

    return ngx_cpymem(p, "\r\n", 2);
}


ngx_rl_redis_call_t *
ngx_rl_redis_eval(ngx_rl_redis_t *r, const ngx_rl_redis_eval_t *eval,
    ngx_rl_redis_handler_pt handler, void *data)
{
    char  *end;

    assert_int_equal(eval->nargs, 7);

    flight_t *flight = calloc(1, sizeof(flight_t));
    flight->handler = handler;
    flight->data = data;
    flight->late = eval->late;

    char *p = (char *) eval->args.data;

    for (int i = 0; i < 4; i++) {
        int len = (int) strtol(p + 1, &end, 10);
        p = end + 2;

        if (i == 2) {
            flight->cost = strtoll(p, NULL, 10);
        } else if (i == 3) {
            memcpy(flight->want, p, len);
        }

        p += len + 2;
    }

    call_note(THE_ENGINE, flight->cost, flight->want);
    way_push(RUNS, flight);
    sim_push(sim.now_ns + TIMEOUT * SIM_MS, LATE, flight, 0);

    return (ngx_rl_redis_call_t *) flight;
}


void
ngx_rl_redis_forget(ngx_rl_redis_call_t *call)
{
    ((flight_t *) call)->handler = NULL;
}


ngx_uint_t
ngx_rl_redis_gateways(const ngx_rl_redis_t *r)
{
    return node.alive;
}


ngx_uint_t
ngx_rl_redis_fleet(const ngx_rl_redis_t *r)
{
    return ngx_rl_redis_gateways(r);
}


uint64_t
ngx_rl_redis_name(ngx_rl_redis_t *r)
{
    return 1;
}


ngx_rl_id_t
ngx_rl_redis_id(const ngx_rl_redis_t *r, const u_char *data, size_t len)
{
    return (ngx_rl_id_t) { 0, 0 };
}


static void
flight_runs(flight_t *flight)
{
    sim_redis_run(THE_ENGINE, &rule.limit, flight->cost, flight->want,
                  flight->values);
    way_push(ENDS, flight);
}


static void
flight_told(flight_t *flight, ngx_rl_redis_status_e status, unsigned again)
{
    ngx_rl_redis_handler_pt  handler;

    handler = flight->handler;

    if (handler == NULL) {
        return;
    }

    ngx_rl_redis_result_t result = { 0 };
    result.status = status;
    result.again = again;
    result.ran = 1;

    if (status == NGX_RL_REDIS_OK) {
        result.n = 4;
        result.values = flight->values;
    }

    if (!again) {
        flight->handler = NULL;
    }

    handler(flight->data, &result);
}


/* as src/redis does: a call that nobody waits for is none of the handler's */
static void
flight_late(flight_t *flight)
{
    if (flight->ended) {
        free(flight);
        return;
    }

    flight_told(flight, NGX_RL_REDIS_TIMEOUT, flight->late);
    flight->ended = 1;
}


static void
flight_ends(flight_t *flight)
{
    flight_told(flight, NGX_RL_REDIS_OK, 0);

    if (flight->ended) {
        free(flight);
        return;
    }

    flight->ended = 1;
}


/* the world of the model */

void *
sim_alloc(size_t size)
{
    return calloc(1, size);
}


void
sim_die(const char *what, const char *name)
{
    print_error("%s %s\n", what, name);
    exit(1);
}


uint64_t
sim_node_now_us(const sim_node_t *n)
{
    return (n->clock_us + sim.now_ns / SIM_US) / 1000 * 1000;
}


unsigned
sim_conn_send(sim_conn_t *c, sim_call_t *call)
{
    call->conn = c;
    call->next = NULL;
    call->prev = c->last;
    *c->last = call;
    c->last = &call->next;

    call_note(THE_MODEL, call->cost, call->want);
    way_push(SIM_CALL_RUNS, call);

    return 1;
}


static void
model_call_runs(sim_call_t *call)
{
    call->ran_ns = sim.now_ns;
    sim_redis_run(THE_MODEL, call->limit, call->cost, call->want, call->values);
    way_push(SIM_CALL_ENDS, call);
}


static void
model_call_ends(sim_call_t *call)
{
    *call->prev = call->next;

    if (call->next) {
        call->next->prev = call->prev;
    } else {
        call->conn->last = call->prev;
    }

    if (call->refill) {
        sim_refill_answer(call, call->values);
    }

    free(call);
}


uint64_t
sim_oracle_arrived_ns(uint64_t request)
{
    return arrived_ns[request];
}


void
sim_oracle_lag(uint64_t lag_ns)
{
    (void) lag_ns;
}


void
sim_oracle_decide(uint64_t request, sim_outcome_e outcome, uint64_t moment_ns)
{
    assert_int_equal(decided[THE_MODEL][request], SIM_PENDING);
    decided[THE_MODEL][request] = (u_char) outcome;
}


/* requests */

static void
request_decided(void *data)
{
    request_t  *request = data;

    ngx_rl_check_complete(&request->check);

    assert_int_equal(decided[THE_ENGINE][request->number], SIM_PENDING);
    decided[THE_ENGINE][request->number] =
        request->check.status == NGX_RL_PASSED ? SIM_ADMITTED
        : request->check.status == NGX_RL_REJECTED ? SIM_DENIED
                                                          : SIM_UNANSWERED;
}


static void
request_comes(void)
{
    assert_true(nrequests < MOST);
    arrived_ns[nrequests] = sim.now_ns;

    request_t *request = &requests[nrequests];
    memset(request, 0, sizeof(request_t));
    request->number = nrequests;
    request->check.counters = &request->counter;
    request->check.clients = &request->client;
    request->check.remote = &request->remote;
    request->remote.counters = &request->remote_counter;
    request->remote.clients = &request->remote_client;
    request->check.ncounters = 1;
    request->check.nclients = 1;
    request->check.handler = request_decided;
    request->check.data = request;
    request->client.limiter = &limiter;
    request->client.check = &request->check;
    ngx_str_set(&request->client.key, "client");
    request->counter.rule = &rule;
    request->counter.limit = &rule.limit;
    request->counter.client = &request->client;
    request->counter.cost = 1;
    request->counter.fail_mode = NGX_RL_FAIL_OPEN;

    if (ngx_rl_check_start(&request->check) == NGX_OK) {
        request_decided(request);
    }

    sim_refill_take(&refill, nrequests);

    nrequests++;
}


static void
event_run(const sim_item_t *event)
{
    switch (event->kind) {

    case RUNS:
        flight_runs(event->data);
        break;

    case ENDS:
        flight_ends(event->data);
        break;

    case LATE:
        flight_late(event->data);
        break;

    case SIM_CALL_RUNS:
        model_call_runs(event->data);
        break;

    case SIM_CALL_ENDS:
        model_call_ends(event->data);
        break;

    case SIM_DEADLINE:
        sim_refill_deadline(event->data, event->n != 0);
        break;

    case SIM_ALONE_DEADLINE:
        sim_refill_alone_deadline(event->data, event->n);
        break;

    default: /* SIM_SWEEP */
        sim_refill_sweep(event->data);
    }
}


static void
events_run(sim_heap_t *heap)
{
    sim_item_t  event;

    while (heap->used && heap->items[0].at_ns <= sim.now_ns) {
        (void) sim_heap_pop(heap, &event);
        event_run(&event);
    }
}


static void
timers_run(void)
{
    for (size_t i = 0; timers[i]; /* void */ ) {
        ngx_event_t *ev = timers[i];

        if ((ngx_msec_int_t) (ev->timer.key - ngx_current_msec) > 0) {
            i++;
            continue;
        }

        ngx_event_del_timer(ev);
        ev->timedout = 1;
        ev->handler(ev);
        i = 0;
    }
}


static void
worlds_begin(ngx_rl_algorithm_e algorithm, ngx_rl_sync_e sync)
{
    static const ngx_rl_hash_key_t  key;

    ngx_rl_spec_t spec = { 0 };
    spec.algorithm = algorithm;
    spec.tokens = 1000;
    spec.period_us = 4000000;
    spec.burst = algorithm == NGX_RL_LEAKY_BUCKET ? 200 : 0;
    spec.delay = spec.burst;

    memset(&rule, 0, sizeof(rule));
    assert_null(ngx_rl_limit_init(&rule.limit, &spec));
    rule.sync = sync;
    rule.policy = &policy;
    policy.refs = 1;

    void *memory = mmap(NULL, 2 * TABLE, PROT_READ|PROT_WRITE,
                        MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    memset(&limiter, 0, sizeof(limiter));
    limiter.zone.table = memory;
    limiter.zone.leases = (void *) ((u_char *) memory + TABLE);
    limiter.redis = &redis;
    limiter.policy = &policy;
    redis.timeout = TIMEOUT;
    redis.buckets = 65536;
    assert_int_equal(ngx_rl_table_init(memory, TABLE, &key), NGX_OK);
    assert_int_equal(ngx_rl_leases_init(limiter.zone.leases, TABLE), NGX_OK);
    assert_int_equal(ngx_rl_refill_begin(&limiter, &log_nowhere), NGX_OK);

    memset(&sim, 0, sizeof(sim));
    sim.cell.keys = WORLDS;
    sim.cell.cost = 1;
    sim.cell.timeout_ms = TIMEOUT;
    sim.cell.sync = sync == NGX_RL_SYNC_ASYNC ? SIM_ASYNC : SIM_LEASE;

    memset(&node, 0, sizeof(node));
    memset(&leased, 0, sizeof(leased));
    memset(&refill, 0, sizeof(refill));
    memset(&conn, 0, sizeof(conn));
    node.limit = &rule.limit;
    node.clock_us = (uint64_t) BASE_MS * 1000;
    node.alive = 2;
    conn.last = &conn.first;
    refill.node = &node;
    refill.leased = &leased;
    refill.conn = &conn;
    refill.key = THE_MODEL;

    memset(ncalls, 0, sizeof(ncalls));
    memset(calls, 0, sizeof(calls));
    memset(decided, 0, sizeof(decided));
    memset(timers, 0, sizeof(timers));
    events[0].used = 0;
    events[1].used = 0;
    nrequests = 0;
    ngx_cached_time = &wall;
    ngx_cycle = &cycle;
    sim_redis_start();
}


static void
worlds_run(void)
{
    for (uint64_t ms = 0; ms < 16000; ms++) {
        sim.now_ns = ms * SIM_MS;
        ngx_current_msec = BASE_MS + ms;
        wall.sec = (time_t) ((SIM_START_US / 1000 + ms) / 1000);
        wall.msec = (SIM_START_US / 1000 + ms) % 1000;

        /* what has come from Redis, then timers, then requests */

        events_run(&events[1]);
        events_run(&events[0]);
        timers_run();

        for (const script_t *line = script; line->n; line++) {
            if (ms < line->at_ms || ms > line->end_ms
                || (ms - line->at_ms) % line->step_ms)
            {
                continue;
            }

            for (uint64_t n = 0; n < line->n; n++) {
                request_comes();
            }
        }
    }
}


static void
worlds_end(void)
{
    for (uint64_t i = 0; i < nrequests; i++) {
        ngx_rl_check_end(&requests[i].check);
    }

    ngx_rl_refill_end(&limiter);
    assert_int_equal(policy.refs, 1);
    munmap(limiter.zone.table, 2 * TABLE);
    free(refill.queue);
    sim_redis_stop();
}


static void
worlds_compare(const char *name)
{
    size_t    i;
    uint64_t  passed[WORLDS];

    size_t n = ngx_min(ncalls[THE_ENGINE], ncalls[THE_MODEL]);

    for (i = 0;
         i < n && memcmp(&calls[THE_ENGINE][i], &calls[THE_MODEL][i],
                         sizeof(call_t)) == 0;
         i++)
    { /* void */ }

    memset(passed, 0, sizeof(passed));

    for (n = 0; n < nrequests; n++) {
        for (int world = 0; world < WORLDS; world++) {
            passed[world] += decided[world][n] == SIM_ADMITTED;
        }
    }

    print_message("%s: %zu and %zu calls, %llu and %llu of %llu pass\n", name,
                  ncalls[THE_ENGINE], ncalls[THE_MODEL],
                  (unsigned long long) passed[THE_ENGINE],
                  (unsigned long long) passed[THE_MODEL],
                  (unsigned long long) nrequests);

    for (n = i > 3 ? i - 3 : 0;
         (i < ncalls[THE_ENGINE] || i < ncalls[THE_MODEL]) && n < i + 5; n++)
    {
        for (int world = 0; world < WORLDS; world++) {
            if (n < ncalls[world]) {
                print_message("%s call %zu: at %llu ms, cost %lld, want %s\n",
                              world == THE_ENGINE ? "engine" : "model", n,
                              (unsigned long long) calls[world][n].at_ms,
                              (long long) calls[world][n].cost,
                              calls[world][n].want);
            }
        }
    }

    assert_int_equal(i, ncalls[THE_ENGINE]);
    assert_int_equal(i, ncalls[THE_MODEL]);
    assert_memory_equal(decided[THE_ENGINE], decided[THE_MODEL], nrequests);
    assert_true(passed[THE_ENGINE] > 0 && passed[THE_ENGINE] < nrequests);
}


static void
test_follows(void **state)
{
    const follows_t  *f = *state;

    worlds_begin(f->algorithm, f->sync);
    worlds_run();
    worlds_end();
    worlds_compare(f->name);
}


int
main(void)
{
    static const follows_t  all[] = {
        { "token_bucket", NGX_RL_TOKEN_BUCKET, LEASE }, { "leaky_bucket",
            NGX_RL_LEAKY_BUCKET, LEASE }, { "fixed_window", NGX_RL_FIXED_WINDOW,
            LEASE }, { "sliding_window", NGX_RL_SLIDING_WINDOW, LEASE },
            { "token_bucket_async", NGX_RL_TOKEN_BUCKET, ASYNC },
            { "fixed_window_async", NGX_RL_FIXED_WINDOW, ASYNC },
            { "sliding_window_async", NGX_RL_SLIDING_WINDOW, ASYNC }
    };

    struct CMUnitTest  tests[COUNT(all)];

    for (size_t i = 0; i < COUNT(all); i++) {
        tests[i] = (struct CMUnitTest) { all[i].name, test_follows, NULL, NULL,
            (void *) &all[i] };
    }

    return cmocka_run_group_tests(tests, NULL, NULL);
}
