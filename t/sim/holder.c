/*
 * What a worker does with leases, as src/engine does it: a holder for each
 * counter, with one call in flight at most and the requests that wait for it;
 * and the calls of requests for themselves. The leases are the node's and
 * decide by the real code.
 */

#include "node.h"

#define SIM_HOLD     (NGX_RATELIMIT_LEASE_HOLD_MS * SIM_MS)

static void sim_holder_env(const sim_holder_t *holder,
    ngx_ratelimit_lease_env_t *env);
static void sim_holder_alone(sim_holder_t *holder, uint64_t request);
static void sim_holder_alone_answer(sim_call_t *call,
    const ngx_ratelimit_answer_t *answer);
static void sim_holder_queue(sim_holder_t *holder, uint64_t request);
static void sim_holder_wait(sim_holder_t *holder);
static uint64_t sim_holder_next(sim_holder_t *holder);
static sim_call_t *sim_holder_call(sim_holder_t *holder);
static void sim_holder_ask(sim_holder_t *holder);
static void sim_holder_debit(sim_holder_t *holder);
static void sim_holder_sent(sim_holder_t *holder, sim_call_t *call);
static void sim_holder_lost(sim_holder_t *holder, sim_call_t *call);
static void sim_holder_failed(sim_holder_t *holder);
static void sim_holder_filled(sim_holder_t *holder, sim_call_t *call,
    ngx_ratelimit_answer_t *answer);
static void sim_holder_give(sim_holder_t *holder,
    const ngx_ratelimit_limit_t *limit, uint64_t tokens, uint64_t taken_us);
static void sim_holder_timer(sim_holder_t *holder);


static void
sim_holder_env(const sim_holder_t *holder, ngx_ratelimit_lease_env_t *env)
{
    env->now_us = sim_node_now_us(holder->node);
    env->nodes = holder->node->alive;
    env->rtt_ms = holder->node->rtt / 16 + 1;
    env->forgot_us = 0;
}


void
sim_holder_lease(sim_holder_t *holder, uint64_t request)
{
    unsigned                   ahead;
    ngx_ratelimit_answer_t     answer;
    ngx_ratelimit_lease_env_t  env;

    sim_holder_env(holder, &env);

    switch (ngx_ratelimit_lease_take(&holder->leased->lease,
                                     holder->node->limit, &env,
                                     (uint32_t) sim.cell.cost, &answer,
                                     &ahead))
    {
    case NGX_RATELIMIT_LEASE_PAID:
        sim_oracle_decide(request, SIM_ADMITTED, SIM_NO_WAIT);

        if (ahead && holder->call == NULL) {
            sim_holder_ask(holder);
        }

        return;

    case NGX_RATELIMIT_LEASE_DENIED:
        sim_oracle_decide(request, SIM_DENIED, SIM_NO_WAIT);
        return;

    default:

        if (ngx_ratelimit_lease_alone(&holder->leased->lease,
                                      holder->node->limit, &env))
        {
            sim_holder_alone(holder, request);
            return;
        }

        sim_holder_queue(holder, request);

        if (holder->call == NULL) {
            sim_holder_ask(holder);
        }
    }
}


/* The engine's call of a client: what comes of it late is not kept. */
static void
sim_holder_alone(sim_holder_t *holder, uint64_t request)
{
    sim_call_t  *call;

    call = sim_holder_call(holder);
    call->alone = 1;
    call->request = request;
    call->cost = (int64_t) sim.cell.cost;
    call->ask.cost = (uint32_t) sim.cell.cost;
    call->ask.want = (uint32_t) sim.cell.cost;
    call->ask.share = 1;
    strcpy(call->want, "0");

    if (!sim_conn_send(holder->conn, call)) {
        ngx_ratelimit_lease_failed(&holder->leased->lease);
        sim_oracle_decide(request, SIM_UNANSWERED, sim.now_ns);
        return;
    }

    sim_push(sim.now_ns + sim.cell.timeout_ms * SIM_MS, SIM_ALONE_DEADLINE,
             holder, request);
}


void
sim_holder_alone_deadline(sim_holder_t *holder, uint64_t request)
{
    sim_call_t  *call;

    for (call = holder->conn->first; call; call = call->next) {

        if (call->alone && call->holder && call->request == request) {
            call->holder = NULL;
            ngx_ratelimit_lease_failed(&holder->leased->lease);
            sim_oracle_decide(request, SIM_UNANSWERED, sim.now_ns);
            return;
        }
    }
}


static void
sim_holder_alone_answer(sim_call_t *call, const ngx_ratelimit_answer_t *answer)
{
    ngx_ratelimit_answer_t      paid;
    ngx_ratelimit_lease_t      *lease;
    ngx_ratelimit_lease_env_t   env;

    lease = &call->holder->leased->lease;
    sim_holder_env(call->holder, &env);

    if (ngx_ratelimit_lease_fill(lease, call->limit, &env, call->sent_us,
                                 &call->ask, answer)
        && answer->granted)
    {
        (void) ngx_ratelimit_lease_pay(lease, call->limit, &env,
                                       answer->granted, &paid);
    }

    sim_oracle_decide(call->request,
                      answer->granted ? SIM_ADMITTED : SIM_DENIED,
                      call->ran_ns);
}


void
sim_holder_async(sim_holder_t *holder, uint64_t request)
{
    unsigned                   ask;
    ngx_ratelimit_lease_e      result;
    ngx_ratelimit_answer_t     answer;
    ngx_ratelimit_lease_env_t  env;

    sim_holder_env(holder, &env);

    result = ngx_ratelimit_async_take(&holder->leased->lease,
                                      holder->node->limit, &env,
                                      (uint32_t) sim.cell.cost, &answer, &ask);

    sim_oracle_decide(request, result == NGX_RATELIMIT_LEASE_PAID
                               ? SIM_ADMITTED : SIM_DENIED, SIM_NO_WAIT);

    if (ask && holder->call == NULL) {
        sim_holder_debit(holder);
    }
}


static void
sim_holder_queue(sim_holder_t *holder, uint64_t request)
{
    uint32_t   i;
    uint64_t  *queue;

    if (holder->used == holder->size) {
        queue = sim_alloc((holder->size ? 2 * holder->size : 4)
                          * sizeof(uint64_t));

        for (i = 0; i < holder->used; i++) {
            queue[i] = holder->queue[(holder->head + i) % holder->size];
        }

        free(holder->queue);
        holder->queue = queue;
        holder->head = 0;
        holder->size = holder->size ? 2 * holder->size : 4;
    }

    holder->queue[(holder->head + holder->used++) % holder->size] = request;
    sim_holder_wait(holder);
}


/* Until the oldest request has waited for as long as one may. */
static void
sim_holder_wait(sim_holder_t *holder)
{
    if (holder->used && !holder->timed) {
        holder->timed = 1;
        sim_push(sim_oracle_arrived_ns(holder->queue[holder->head])
                 + sim.cell.timeout_ms * SIM_MS, SIM_DEADLINE, holder, 1);
    }
}


static uint64_t
sim_holder_next(sim_holder_t *holder)
{
    uint64_t  request;

    request = holder->queue[holder->head];
    holder->head = (holder->head + 1) % holder->size;
    holder->used--;

    return request;
}


void
sim_holder_all(sim_holder_t *holder, sim_outcome_e outcome,
    uint64_t moment_ns)
{
    while (holder->used) {
        sim_oracle_decide(sim_holder_next(holder), outcome, moment_ns);
    }
}


/* A call may still be answered behind it, and fills the lease then. */
void
sim_holder_deadline(sim_holder_t *holder, unsigned waited)
{
    if (holder->call && holder->until_ns <= sim.now_ns) {
        holder->call = NULL;
        sim_holder_all(holder, SIM_UNANSWERED, sim.now_ns);
    }

    if (!waited) {
        return;
    }

    holder->timed = 0;

    while (holder->used
           && sim_oracle_arrived_ns(holder->queue[holder->head])
              + sim.cell.timeout_ms * SIM_MS <= sim.now_ns)
    {
        sim_oracle_decide(sim_holder_next(holder), SIM_UNANSWERED, sim.now_ns);
    }

    sim_holder_wait(holder);
}


static sim_call_t *
sim_holder_call(sim_holder_t *holder)
{
    sim_call_t  *call;

    call = sim_alloc(sizeof(*call));
    call->holder = holder;
    call->limit = holder->node->limit;
    call->key = holder->key;
    call->sent_us = sim_node_now_us(holder->node);

    return call;
}


/* For those who wait, or ahead of need. */
static void
sim_holder_ask(sim_holder_t *holder)
{
    uint32_t                      back;
    sim_call_t                   *call;
    ngx_ratelimit_lease_t        *lease;
    ngx_ratelimit_lease_env_t     env;
    const ngx_ratelimit_limit_t  *limit;

    lease = &holder->leased->lease;
    limit = holder->node->limit;

    sim_holder_env(holder, &env);

    back = ngx_ratelimit_lease_stale(lease, limit, &env);

    if (back) {
        sim_holder_give(holder, limit, back,
                        ngx_ratelimit_lease_age_us(lease, limit, env.now_us));
    }

    call = sim_holder_call(holder);

    ngx_ratelimit_lease_size(lease, limit, &env,
                             holder->used ? (uint32_t) sim.cell.cost : 0,
                             (uint32_t) (holder->used * sim.cell.cost),
                             &call->ask);

    if (holder->used == 0 && call->ask.ahead == 0) {
        free(call);
        return;
    }

    call->cost = call->ask.cost;

    if (call->ask.ahead) {
        snprintf(call->want, sizeof(call->want), "%u+%u/%u", call->ask.want,
                 call->ask.ahead, call->ask.share);
    } else {
        snprintf(call->want, sizeof(call->want), "%u", call->ask.want);
    }

    sim_holder_sent(holder, call);
}


/* Each request by itself. */
void
sim_holder_strict(sim_holder_t *holder, uint64_t request)
{
    sim_call_t  *call;

    call = sim_holder_call(holder);
    call->request = request;
    call->cost = (int64_t) sim.cell.cost;
    strcpy(call->want, "0");

    if (!sim_conn_send(holder->conn, call)) {
        sim_oracle_decide(request, SIM_UNANSWERED, SIM_NO_WAIT);
    }
}


/* Of an async counter: what was spent. */
static void
sim_holder_debit(sim_holder_t *holder)
{
    sim_call_t  *call;

    call = sim_holder_call(holder);
    call->ask.want = ngx_ratelimit_async_debt(&holder->leased->lease);
    snprintf(call->want, sizeof(call->want), "%u", call->ask.want);

    sim_holder_sent(holder, call);
}


static void
sim_holder_sent(sim_holder_t *holder, sim_call_t *call)
{
    holder->call = call;
    holder->until_ns = sim.now_ns + sim.cell.timeout_ms * SIM_MS;

    if (sim_conn_send(holder->conn, call)) {
        sim_push(holder->until_ns, SIM_DEADLINE, holder, 0);

    } else {
        holder->call = NULL;
        sim_holder_failed(holder);
        sim_holder_all(holder, SIM_UNANSWERED, sim.now_ns);
    }

    sim_holder_timer(holder);
}


static void
sim_holder_lost(sim_holder_t *holder, sim_call_t *call)
{
    if (sim.cell.sync == SIM_STRICT) {
        sim_oracle_decide(call->request, SIM_UNANSWERED, sim.now_ns);
        return;
    }

    if (call->alone) {
        ngx_ratelimit_lease_failed(&holder->leased->lease);
        sim_oracle_decide(call->request, SIM_UNANSWERED, sim.now_ns);
        return;
    }

    if (holder->call == call) {
        holder->call = NULL;
        sim_holder_failed(holder);
        sim_holder_all(holder, SIM_UNANSWERED, sim.now_ns);
    }
}


/* What is to be debited, async, will be by the next sweep. */
static void
sim_holder_failed(sim_holder_t *holder)
{
    if (sim.cell.sync == SIM_LEASE) {
        ngx_ratelimit_lease_failed(&holder->leased->lease);
    }
}


void
sim_holder_answer(sim_call_t *call, const int64_t *values)
{
    uint64_t                   took_ns;
    sim_holder_t              *holder;
    ngx_ratelimit_answer_t     answer;
    ngx_ratelimit_lease_env_t  env;

    holder = call->holder;

    if (values == NULL) {
        sim_holder_lost(holder, call);
        return;
    }

    answer.granted = (uint32_t) values[0];
    answer.remaining = (uint32_t) values[1];
    answer.reset_us = (uint64_t) values[2] * 1000;
    answer.retry_us = (values[3] == -1) ? NGX_RATELIMIT_NEVER
                                        : (uint64_t) values[3] * 1000;

    if (sim.cell.sync == SIM_STRICT) {
        took_ns = sim.now_ns - sim_oracle_arrived_ns(call->request);
        sim_oracle_decide(call->request,
                          took_ns > sim.cell.timeout_ms * SIM_MS
                          ? SIM_UNANSWERED
                          : answer.granted ? SIM_ADMITTED : SIM_DENIED,
                          call->ran_ns);
        return;
    }

    if (call->alone) {
        sim_holder_alone_answer(call, &answer);
        return;
    }

    took_ns = (sim_node_now_us(holder->node) - call->sent_us) * SIM_US;
    took_ns = took_ns < sim.cell.timeout_ms * SIM_MS
              ? took_ns : sim.cell.timeout_ms * SIM_MS;
    holder->node->rtt += (uint32_t) (2 * took_ns / SIM_MS)
                         - holder->node->rtt / 8;

    if (holder->call == call) {
        holder->call = NULL;
    }

    if (sim.cell.sync == SIM_LEASE) {
        sim_holder_filled(holder, call, &answer);
        return;
    }

    sim_holder_env(holder, &env);
    ngx_ratelimit_async_fill(&holder->leased->lease, call->limit, &env,
                             call->sent_us, call->ask.want, &answer);
}


static void
sim_holder_filled(sim_holder_t *holder, sim_call_t *call,
    ngx_ratelimit_answer_t *answer)
{
    uint64_t                      spare;
    const ngx_ratelimit_limit_t  *limit;
    ngx_ratelimit_answer_t        paid;
    ngx_ratelimit_lease_env_t     env;

    limit = call->limit;
    spare = 0;

    sim_holder_env(holder, &env);

    if (!ngx_ratelimit_lease_fill(&holder->leased->lease, limit, &env,
                                  call->sent_us, &call->ask, answer))
    {
        spare = answer->granted;
    }

    while (holder->used) {

        if (spare >= sim.cell.cost) {
            spare -= sim.cell.cost;

        } else if (!ngx_ratelimit_lease_pay(&holder->leased->lease, limit,
                                            &env, (uint32_t) sim.cell.cost,
                                            &paid))
        {
            break;
        }

        sim_oracle_decide(sim_holder_next(holder), SIM_ADMITTED,
                          call->ran_ns);
    }

    if (spare) {
        sim_holder_give(holder, limit, spare,
                        ngx_ratelimit_window_answer_age_us(limit, env.now_us,
                                                           call->sent_us,
                                                           answer));
    }

    if (call->ask.cost && answer->retry_us) {
        sim_holder_all(holder, SIM_DENIED, call->ran_ns);
    }

    if (holder->used && holder->call == NULL) {
        sim_holder_ask(holder);
    }

    sim_holder_timer(holder);
}


static void
sim_holder_give(sim_holder_t *holder, const ngx_ratelimit_limit_t *limit,
    uint64_t tokens, uint64_t age_us)
{
    sim_call_t  *call;

    call = sim_holder_call(holder);
    call->holder = NULL;
    call->limit = limit;
    call->cost = -(int64_t) tokens;
    snprintf(call->want, sizeof(call->want), "%llu",
             (unsigned long long) (age_us + 999) / 1000);

    sim_conn_send(holder->conn, call);
}


static void
sim_holder_timer(sim_holder_t *holder)
{
    if (!holder->sweeping) {
        holder->sweeping = 1;
        sim_push(sim.now_ns + SIM_HOLD, SIM_SWEEP, holder, 0);
    }
}


void
sim_holder_sweep(sim_holder_t *holder)
{
    uint32_t                      tokens;
    uint64_t                      age_us;
    ngx_ratelimit_lease_t        *lease;
    ngx_ratelimit_lease_env_t     env;
    const ngx_ratelimit_limit_t  *limit;

    holder->sweeping = 0;
    lease = &holder->leased->lease;
    limit = holder->node->limit;

    if (sim.cell.sync == SIM_ASYNC) {
        sim_holder_env(holder, &env);

        if (holder->call == NULL && ngx_ratelimit_async_due(lease, &env))
        {
            sim_holder_debit(holder);

        } else if (ngx_ratelimit_async_debt(lease)) {
            sim_holder_timer(holder);
        }

        return;
    }

    sim_holder_env(holder, &env);
    age_us = ngx_ratelimit_lease_age_us(lease, limit, env.now_us);
    tokens = 0;

    /* to a window that ends before a call may run nothing goes back */

    if (limit->algorithm != NGX_RATELIMIT_FIXED_WINDOW
        || lease->fresh_us >= env.now_us + sim.cell.timeout_ms * 1000)
    {
        tokens = ngx_ratelimit_lease_sweep(lease, limit, &env, 0);
    }

    if (tokens) {
        sim_holder_give(holder, limit, tokens, age_us);
    }

    if (lease->tokens || holder->call) {
        sim_holder_timer(holder);
    }
}
