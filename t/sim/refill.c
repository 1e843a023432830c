/*
 * What a worker does with leases, as src/engine does it: a refill for each
 * counter, with one call in flight at most and the requests that wait for it;
 * and the calls of requests for themselves. The leases are the node's and
 * decide by the real code.
 */

#include "node.h"

#define SIM_HOLD     (NGX_RL_LEDGER_HOLD_MS * SIM_MS)

static void sim_refill_env(const sim_refill_t *refill,
    ngx_rl_ledger_env_t *env);
static void sim_refill_alone(sim_refill_t *refill, uint64_t request);
static void sim_refill_alone_answer(sim_call_t *call,
    const ngx_rl_answer_t *answer);
static void sim_refill_queue(sim_refill_t *refill, uint64_t request);
static void sim_refill_wait(sim_refill_t *refill);
static uint64_t sim_refill_next(sim_refill_t *refill);
static sim_call_t *sim_refill_call(sim_refill_t *refill);
static void sim_refill_ask(sim_refill_t *refill);
static void sim_refill_alone_take(sim_refill_t *refill,
    const ngx_rl_ledger_env_t *env, ngx_rl_answer_t *answer);
static void sim_refill_sent(sim_refill_t *refill, sim_call_t *call);
static void sim_refill_lost(sim_refill_t *refill, sim_call_t *call);
static void sim_refill_failed(sim_refill_t *refill, int32_t debit);
static void sim_refill_filled(sim_refill_t *refill, sim_call_t *call,
    ngx_rl_answer_t *answer);
static void sim_refill_give(sim_refill_t *refill, const ngx_rl_limit_t *limit,
    uint64_t tokens, uint64_t taken_us);
static void sim_refill_timer(sim_refill_t *refill);


static void
sim_refill_env(const sim_refill_t *refill, ngx_rl_ledger_env_t *env)
{
    env->now_us = sim_node_now_us(refill->node);
    env->gateways = refill->node->alive;
    env->rtt_ms = refill->node->rtt / 16 + 1;
    env->forgot_us = 0;
    env->behind = (sim.cell.sync == SIM_ASYNC);
    env->interval_ms = (uint32_t) sim.cell.interval_ms;
    env->share = 1;
}


void
sim_refill_take(sim_refill_t *refill, uint64_t request)
{
    unsigned               next;
    ngx_rl_answer_t        answer;
    ngx_rl_ledger_e        rc;
    ngx_rl_ledger_t       *ledger;
    ngx_rl_ledger_env_t    env;
    const ngx_rl_limit_t  *limit;

    ledger = &refill->leased->ledger;
    limit = refill->node->limit;

    sim_refill_env(refill, &env);

    rc = ngx_rl_ledger_take(ledger, limit, &env, (uint32_t) sim.cell.cost,
                            &answer, &next);

    if (rc >= NGX_RL_LEDGER_ASK && env.behind) {
        sim_refill_alone_take(refill, &env, &answer);
        rc = NGX_RL_LEDGER_REJECTED;

        if (answer.granted) {
            rc = NGX_RL_LEDGER_PAID;
            ngx_rl_ledger_spent(ledger, limit, &env, &answer, &next);
        }
    }

    if (rc != NGX_RL_LEDGER_ASK) {
        sim_oracle_decide(request,
                          rc == NGX_RL_LEDGER_PAID ? SIM_ADMITTED : SIM_DENIED,
                          SIM_NO_WAIT);

        if (next == NGX_RL_LEDGER_SWEEP) {
            sim_refill_timer(refill);

        } else if (next && refill->call == NULL) {
            sim_refill_ask(refill);
        }

        return;
    }

    if (ngx_rl_ledger_alone(ledger, limit, &env)) {
        sim_refill_alone(refill, request);
        return;
    }

    sim_refill_queue(refill, request);

    if (refill->call == NULL) {
        sim_refill_ask(refill);
    }
}


/* The engine's call of a client: what comes of it late is not kept. */
static void
sim_refill_alone(sim_refill_t *refill, uint64_t request)
{
    sim_call_t  *call;

    call = sim_refill_call(refill);
    call->alone = 1;
    call->request = request;
    call->cost = (int64_t) sim.cell.cost;
    call->says.cost = (uint32_t) sim.cell.cost;
    call->says.want = (uint32_t) sim.cell.cost;
    call->says.share = 1;
    strcpy(call->want, "0");

    if (!sim_conn_send(refill->conn, call)) {
        sim_refill_failed(refill, 0);
        sim_oracle_decide(request, SIM_UNANSWERED, sim.now_ns);
        return;
    }

    sim_push(sim.now_ns + sim.cell.timeout_ms * SIM_MS, SIM_ALONE_DEADLINE,
             refill, request);
}


void
sim_refill_alone_deadline(sim_refill_t *refill, uint64_t request)
{
    sim_call_t  *call;

    for (call = refill->conn->first; call; call = call->next) {

        if (call->alone && call->refill && call->request == request) {
            call->refill = NULL;
            sim_refill_failed(refill, 0);
            sim_oracle_decide(request, SIM_UNANSWERED, sim.now_ns);
            return;
        }
    }
}


static void
sim_refill_alone_answer(sim_call_t *call, const ngx_rl_answer_t *answer)
{
    ngx_rl_answer_t       paid;
    ngx_rl_ledger_t      *ledger;
    ngx_rl_ledger_env_t   env;

    ledger = &call->refill->leased->ledger;
    sim_refill_env(call->refill, &env);

    if (ngx_rl_ledger_fill(ledger, call->limit, &env, call->sent_us,
                           &call->says, answer)
        && answer->granted)
    {
        (void) ngx_rl_ledger_pay(ledger, call->limit, &env, answer->granted,
                                 &paid);
    }

    sim_oracle_decide(call->request,
                      answer->granted ? SIM_ADMITTED : SIM_DENIED,
                      call->ran_ns);
}


/* The node's own counter, in whole tokens. */
static void
sim_refill_alone_take(sim_refill_t *refill, const ngx_rl_ledger_env_t *env,
    ngx_rl_answer_t *answer)
{
    uint64_t               wall_us;
    uint32_t               cost;
    sim_leased_t          *leased;
    const ngx_rl_limit_t  *limit;

    leased = refill->leased;
    limit = refill->node->limit;
    cost = (uint32_t) sim.cell.cost;
    wall_us = SIM_START_US + sim.now_ns / SIM_US;

    switch (limit->algorithm) {

    case NGX_RL_FIXED_WINDOW:
        ngx_rl_fixed_window_take(&leased->w, limit, env->now_us,
                            ngx_rl_calendar_bounds(limit, wall_us).end_us
                            - wall_us, limit->window_us, cost, 0, answer);
        return;

    case NGX_RL_SLIDING_WINDOW:
        ngx_rl_sliding_window_take(&leased->w, limit, env->now_us, cost,
                                   0, answer);
        return;

    default:
        ngx_rl_token_bucket_take(&leased->tb, &limit->rate, env->now_us,
                                 cost, 0, answer);
    }
}


static void
sim_refill_queue(sim_refill_t *refill, uint64_t request)
{
    uint32_t   i;
    uint64_t  *queue;

    if (refill->used == refill->size) {
        queue = sim_alloc((refill->size ? 2 * refill->size : 4)
                          * sizeof(uint64_t));

        for (i = 0; i < refill->used; i++) {
            queue[i] = refill->queue[(refill->head + i) % refill->size];
        }

        free(refill->queue);
        refill->queue = queue;
        refill->head = 0;
        refill->size = refill->size ? 2 * refill->size : 4;
    }

    refill->queue[(refill->head + refill->used++) % refill->size] = request;
    sim_refill_wait(refill);
}


/* Until the oldest request has waited for as long as one may. */
static void
sim_refill_wait(sim_refill_t *refill)
{
    if (refill->used && !refill->timed) {
        refill->timed = 1;
        sim_push(sim_oracle_arrived_ns(refill->queue[refill->head])
                 + sim.cell.timeout_ms * SIM_MS, SIM_DEADLINE, refill, 1);
    }
}


static uint64_t
sim_refill_next(sim_refill_t *refill)
{
    uint64_t  request;

    request = refill->queue[refill->head];
    refill->head = (refill->head + 1) % refill->size;
    refill->used--;

    return request;
}


void
sim_refill_all(sim_refill_t *refill, sim_outcome_e outcome, uint64_t moment_ns)
{
    while (refill->used) {
        sim_oracle_decide(sim_refill_next(refill), outcome, moment_ns);
    }
}


/* A call may still be answered behind it, and fills the lease then. */
void
sim_refill_deadline(sim_refill_t *refill, unsigned waited)
{
    if (refill->call && refill->until_ns <= sim.now_ns) {
        refill->call = NULL;
        sim_refill_all(refill, SIM_UNANSWERED, sim.now_ns);
    }

    if (!waited) {
        return;
    }

    refill->timed = 0;

    while (refill->used
           && sim_oracle_arrived_ns(refill->queue[refill->head])
              + sim.cell.timeout_ms * SIM_MS <= sim.now_ns)
    {
        sim_oracle_decide(sim_refill_next(refill), SIM_UNANSWERED, sim.now_ns);
    }

    sim_refill_wait(refill);
}


static sim_call_t *
sim_refill_call(sim_refill_t *refill)
{
    sim_call_t  *call;

    call = sim_alloc(sizeof(*call));
    call->refill = refill;
    call->limit = refill->node->limit;
    call->key = refill->key;
    call->sent_us = sim_node_now_us(refill->node);

    return call;
}


/* For those who wait, or ahead of need; async: what the ledger owes. */
static void
sim_refill_ask(sim_refill_t *refill)
{
    unsigned               asks;
    sim_call_t            *call;
    ngx_rl_ledger_env_t    env;
    ngx_rl_ledger_call_t  *says;
    const ngx_rl_limit_t  *limit;

    limit = refill->node->limit;

    sim_refill_env(refill, &env);

    call = sim_refill_call(refill);
    says = &call->says;

    asks = ngx_rl_ledger_ask(&refill->leased->ledger, limit, &env,
                             refill->used ? (uint32_t) sim.cell.cost : 0,
                             (uint32_t) (refill->used * sim.cell.cost), says);

    if (!env.behind && says->debit) {
        sim_refill_give(refill, limit, (uint32_t) -says->debit, says->age_us);
        says->debit = 0;
    }

    if (!asks) {
        free(call);
        return;
    }

    if (says->debit > 0) {
        snprintf(call->want, sizeof(call->want), "%d", -1 - says->debit);

    } else if (says->look) {
        call->cost = says->look;
        strcpy(call->want, "-1");

    } else if (says->ahead) {
        call->cost = says->cost;
        snprintf(call->want, sizeof(call->want), "%u+%u/%u", says->want,
                 says->ahead, says->share);
    } else {
        call->cost = says->cost;
        snprintf(call->want, sizeof(call->want), "%u", says->want);
    }

    sim_refill_sent(refill, call);
}


/* Each request by itself. */
void
sim_refill_strict(sim_refill_t *refill, uint64_t request)
{
    sim_call_t  *call;

    call = sim_refill_call(refill);
    call->request = request;
    call->cost = (int64_t) sim.cell.cost;
    strcpy(call->want, "0");

    if (!sim_conn_send(refill->conn, call)) {
        sim_oracle_decide(request, SIM_UNANSWERED, SIM_NO_WAIT);
    }
}


static void
sim_refill_sent(sim_refill_t *refill, sim_call_t *call)
{
    int32_t  debit;

    debit = call->says.debit;
    refill->call = call;
    refill->until_ns = sim.now_ns + sim.cell.timeout_ms * SIM_MS;

    if (sim_conn_send(refill->conn, call)) {
        sim_push(refill->until_ns, SIM_DEADLINE, refill, 0);

    } else {
        refill->call = NULL;
        sim_refill_failed(refill, debit);
        sim_refill_all(refill, SIM_UNANSWERED, sim.now_ns);
    }

    sim_refill_timer(refill);
}


static void
sim_refill_lost(sim_refill_t *refill, sim_call_t *call)
{
    if (sim.cell.sync == SIM_STRICT) {
        sim_oracle_decide(call->request, SIM_UNANSWERED, sim.now_ns);
        return;
    }

    if (call->alone) {
        sim_refill_failed(refill, 0);
        sim_oracle_decide(call->request, SIM_UNANSWERED, sim.now_ns);
        return;
    }

    if (sim.cell.sync == SIM_ASYNC || refill->call == call) {

        if (refill->call == call) {
            refill->call = NULL;
        }

        sim_refill_failed(refill, 0);
        sim_refill_all(refill, SIM_UNANSWERED, sim.now_ns);
    }
}


/* A debit that was lost on the way may have run. */
static void
sim_refill_failed(sim_refill_t *refill, int32_t debit)
{
    ngx_rl_ledger_env_t   env;
    ngx_rl_ledger_call_t  says;

    memset(&says, 0, sizeof(says));
    says.debit = debit;

    sim_refill_env(refill, &env);
    says.asked_ms = (uint32_t) (env.now_us / 1000);
    ngx_rl_ledger_failed(&refill->leased->ledger, refill->node->limit, &env,
                         &says);
}


void
sim_refill_answer(sim_call_t *call, const int64_t *values)
{
    uint64_t            took_ns;
    sim_refill_t       *refill;
    ngx_rl_answer_t     answer;
    ngx_rl_ledger_env_t  env;

    refill = call->refill;

    if (values == NULL) {
        sim_refill_lost(refill, call);
        return;
    }

    answer.granted = (uint32_t) values[0];
    answer.remaining = (uint32_t) values[1];
    answer.reset_us = (uint64_t) values[2] * 1000;
    answer.retry_us = (values[3] == -1) ? NGX_RL_NEVER
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
        sim_refill_alone_answer(call, &answer);
        return;
    }

    took_ns = (sim_node_now_us(refill->node) - call->sent_us) * SIM_US;

    if (call->says.debit > 0) {
        sim_oracle_lag(took_ns + (uint32_t) (call->says.asked_ms
                                             - call->says.owed_ms) * SIM_MS);
    }

    took_ns = took_ns < sim.cell.timeout_ms * SIM_MS
              ? took_ns : sim.cell.timeout_ms * SIM_MS;
    refill->node->rtt += (uint32_t) (2 * took_ns / SIM_MS)
                         - refill->node->rtt / 8;

    if (refill->call == call) {
        refill->call = NULL;
    }

    if (sim.cell.sync == SIM_LEASE) {
        sim_refill_filled(refill, call, &answer);
        return;
    }

    sim_refill_env(refill, &env);
    (void) ngx_rl_ledger_fill(&refill->leased->ledger, call->limit, &env,
                              call->sent_us, &call->says, &answer);
}


static void
sim_refill_filled(sim_refill_t *refill, sim_call_t *call,
    ngx_rl_answer_t *answer)
{
    uint64_t               spare;
    const ngx_rl_limit_t  *limit;
    ngx_rl_answer_t        paid;
    ngx_rl_ledger_env_t     env;

    limit = call->limit;
    spare = 0;

    sim_refill_env(refill, &env);

    if (!ngx_rl_ledger_fill(&refill->leased->ledger, limit, &env,
                            call->sent_us, &call->says, answer))
    {
        spare = answer->granted;
    }

    while (refill->used) {

        if (spare >= sim.cell.cost) {
            spare -= sim.cell.cost;

        } else if (!ngx_rl_ledger_pay(&refill->leased->ledger, limit, &env,
                                      (uint32_t) sim.cell.cost, &paid))
        {
            break;
        }

        sim_oracle_decide(sim_refill_next(refill), SIM_ADMITTED, call->ran_ns);
    }

    if (spare) {
        sim_refill_give(refill, limit, spare,
                        ngx_rl_window_answer_age_us(limit, env.now_us,
                                                    call->sent_us,
                                                    answer));
    }

    if (call->says.cost && answer->retry_us) {
        sim_refill_all(refill, SIM_DENIED, call->ran_ns);
    }

    if (refill->used && refill->call == NULL) {
        sim_refill_ask(refill);
    }

    sim_refill_timer(refill);
}


static void
sim_refill_give(sim_refill_t *refill, const ngx_rl_limit_t *limit,
    uint64_t tokens, uint64_t age_us)
{
    sim_call_t  *call;

    call = sim_refill_call(refill);
    call->refill = NULL;
    call->limit = limit;
    call->cost = -(int64_t) tokens;
    snprintf(call->want, sizeof(call->want), "%llu",
             (unsigned long long) (age_us + 999) / 1000);

    sim_conn_send(refill->conn, call);
}


static void
sim_refill_timer(sim_refill_t *refill)
{
    if (!refill->sweeping) {
        refill->sweeping = 1;
        sim_push(sim.now_ns + SIM_HOLD, SIM_SWEEP, refill, 0);
    }
}


void
sim_refill_sweep(sim_refill_t *refill)
{
    unsigned               due;
    ngx_rl_ledger_t       *ledger;
    ngx_rl_ledger_env_t    env;
    ngx_rl_ledger_call_t   says;
    const ngx_rl_limit_t  *limit;

    refill->sweeping = 0;
    ledger = &refill->leased->ledger;
    limit = refill->node->limit;
    due = 0;
    says.debit = 0;

    sim_refill_env(refill, &env);

    if (env.behind && env.now_us >= ledger->busy_us) {
        return;
    }

    /* to a window that ends before a call may run nothing goes back */

    if (env.behind || limit->algorithm != NGX_RL_FIXED_WINDOW
        || ledger->fresh_us >= env.now_us + sim.cell.timeout_ms * 1000)
    {
        due = ngx_rl_ledger_sweep(ledger, limit, &env, 0, &says);
    }

    if (says.debit) {
        sim_refill_give(refill, limit, -says.debit, says.age_us);
    }

    if (due && refill->call == NULL) {
        sim_refill_ask(refill);

    } else if ((env.behind ? ledger->owed != 0 : ledger->tokens != 0)
               || refill->call)
    {
        sim_refill_timer(refill);
    }
}
