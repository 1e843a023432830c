/*
 * The connections between workers and Redis. What is sent over one arrives in
 * its order; when it breaks, all that is in flight on it is lost, and of the
 * calls that had not reached Redis half run all the same.
 */

#include "sim.h"

#define SIM_SERVICE  (10 * SIM_US)     /* of a call, on its shard's core */
#define SIM_AGAIN    SIM_MS            /* to connect again */


static uint64_t sim_delay(void);
static void sim_call_unlink(sim_call_t *call);


static sim_chance_t  sim_wire_chance;
static uint64_t      sim_wire_calls;
static uint64_t      sim_shard_free[SIM_SHARDS];


void
sim_conn_init(sim_conn_t *conn)
{
    memset(conn, 0, sizeof(*conn));
    conn->last = &conn->first;
}


/* Also starts to count anew. */
uint64_t
sim_calls(void)
{
    uint64_t  calls;

    calls = sim_wire_calls;
    sim_wire_calls = 0;
    sim_wire_chance.state = sim.cell.seed * 1000003;
    memset(sim_shard_free, 0, sizeof(sim_shard_free));

    return calls;
}


unsigned
sim_conn_send(sim_conn_t *conn, sim_call_t *call)
{
    uint64_t  at_ns;

    if (sim.away) {
        free(call);
        return 0;
    }

    sim_wire_calls++;

    call->conn = conn;
    call->next = NULL;
    call->prev = conn->last;
    *conn->last = call;
    conn->last = &call->next;

    at_ns = sim.now_ns > conn->ready_ns ? sim.now_ns : conn->ready_ns;
    at_ns += sim_delay();

    if (at_ns < conn->there_ns) {
        at_ns = conn->there_ns;
    }

    conn->there_ns = at_ns;
    call->back_ns = sim_delay();

    sim_push(at_ns, SIM_CALL_RUNS, call, 0);

    return 1;
}


static uint64_t
sim_delay(void)
{
    uint64_t  least_ns;

    if (sim.slow) {
        return 20 * SIM_MS + sim_below(&sim_wire_chance, 30 * SIM_MS);
    }

    /* 300 to 700 us where nothing else is said */

    least_ns = sim.cell.delay_us * SIM_US;

    return least_ns + sim_below(&sim_wire_chance, least_ns * 4 / 3 + 1)
           + sim.cell.rtt_us * SIM_US / 2;
}


void
sim_call_runs(sim_call_t *call)
{
    uint64_t     at_ns, *busy_ns;
    sim_conn_t  *conn;

    conn = call->conn;

    /* with a connection Redis is there: it breaks as Redis goes away */

    if (conn == NULL && (sim.away || sim_below(&sim_wire_chance, 2))) {
        free(call);
        return;
    }

    call->ran_ns = sim.now_ns;
    sim_redis_run(call->key, call->limit, call->cost, call->want, call->values);

    if (conn == NULL) {
        free(call);
        return;
    }

    busy_ns = &sim_shard_free[call->key % sim.cell.shards];
    *busy_ns = (*busy_ns > sim.now_ns ? *busy_ns : sim.now_ns) + SIM_SERVICE;

    at_ns = *busy_ns + call->back_ns;

    if (at_ns < conn->back_ns) {
        at_ns = conn->back_ns;
    }

    conn->back_ns = at_ns;

    sim_push(at_ns, SIM_CALL_ENDS, call, 0);
}


void
sim_call_ends(sim_call_t *call)
{
    if (call->conn) {
        sim_call_unlink(call);

        if (call->refill) {
            sim_refill_answer(call, call->values);
        }
    }

    free(call);
}


static void
sim_call_unlink(sim_call_t *call)
{
    *call->prev = call->next;

    if (call->next) {
        call->next->prev = call->prev;
    } else {
        call->conn->last = call->prev;
    }

    call->conn = NULL;
}


/* What refills ask again meanwhile is not in flight yet, and stays. */
void
sim_conn_break(sim_conn_t *conn)
{
    sim_call_t  *call, *next;

    call = conn->first;
    sim_conn_init(conn);
    conn->ready_ns = sim.now_ns + SIM_AGAIN;

    for ( /* void */ ; call; call = next) {
        next = call->next;
        call->conn = NULL;

        if (call->refill) {
            sim_refill_answer(call, NULL);
        }
    }
}
