/*
 * Gateways without Redis: each decides by its own counters and tells the others
 * what it has spent, as src/peers does, by the real messages and rules of
 * src/core. Beside it gossip, to compare: each tells three others, chosen
 * anew, what it knows of all; then a sum for each gateway is needed, or a
 * spend that comes twice would count twice.
 */

#include "sim.h"

#define SIM_TICK      (100 * SIM_MS)      /* +- 30 % */
#define SIM_RESENT    (200 * SIM_MS)      /* a packet of a message was lost */
#define SIM_GOSSIPED  3

typedef struct {
    ngx_rl_token_bucket_t  tb;
    ngx_rl_window_t        w;
    uint64_t               end_us;   /* of the window that spent is of */
    int32_t                spent;    /* not told yet */
} sim_own_t;

typedef struct {
    sim_own_t  *counters;
    uint64_t   *known;       /* gossip: what each node has spent of each key */
    uint64_t   *there_ns;    /* to each node: the last message arrives */
    uint64_t    clock_us;    /* what its clock is ahead by */
    uint64_t    life;        /* a crash begins another one */
    unsigned    up:1;
} sim_member_t;

typedef struct {
    uint64_t   from;
    uint64_t   to;
    uint64_t   life;         /* of the receiver */
    size_t     len;
    u_char     data[];
} sim_told_t;


static sim_member_t  *sim_members;
static sim_chance_t   sim_fleet_chance;
static uint64_t       sim_messages;
static unsigned       sim_cut;

static const u_char   sim_key[NGX_RL_TOLD_SECRET];


static unsigned
sim_fleet_gossips(void)
{
    return sim.cell.sync == SIM_GOSSIP;
}


static void
sim_fleet_next(uint64_t n)
{
    sim_push(sim.now_ns + SIM_TICK * 7 / 10
             + sim_below(&sim_fleet_chance, SIM_TICK * 6 / 10),
             SIM_TELL, NULL, n);
}


void
sim_fleet_start(void)
{
    uint64_t       n;
    sim_member_t  *member;

    sim_members = sim_alloc(sim.cell.nodes * sizeof(sim_member_t));
    sim_fleet_chance.state = sim.cell.seed * 104729;
    sim_messages = 0;
    sim_cut = 0;

    for (n = 0; n < sim.cell.nodes; n++) {
        member = &sim_members[n];
        member->counters = sim_alloc(sim.cell.keys * sizeof(sim_own_t));
        member->there_ns = sim_alloc(sim.cell.nodes * sizeof(uint64_t));
        member->known = sim_alloc(sim_fleet_gossips() * sim.cell.nodes
                                  * sim.cell.keys * sizeof(uint64_t));
        member->clock_us = 5000000
                           + sim_below(&sim_fleet_chance, 1000000000);
        sim_push(sim_below(&sim_fleet_chance, SIM_TICK), SIM_TELL, NULL, n);
    }
}


uint64_t
sim_fleet_stop(void)
{
    uint64_t  n;

    for (n = 0; n < sim.cell.nodes; n++) {
        free(sim_members[n].counters);
        free(sim_members[n].there_ns);
        free(sim_members[n].known);
    }

    free(sim_members);

    return sim_messages;
}


/* left_us: of a fixed window, what a message says; 0: the own window. */
static void
sim_fleet_take(uint64_t n, uint64_t key, const ngx_rl_limit_t *limit,
    uint32_t cost, uint32_t want, uint64_t left_us, ngx_rl_answer_t *answer)
{
    uint64_t        now_us, wall_us;
    sim_own_t      *own;

    own = &sim_members[n].counters[key];
    now_us = (sim_members[n].clock_us + sim.now_ns / SIM_US) / 1000 * 1000;
    wall_us = SIM_START_US + sim.now_ns / SIM_US;

    switch (limit->algorithm) {

    case NGX_RL_FIXED_WINDOW:

        if (left_us == 0) {
            left_us = limit->window_us - wall_us % limit->window_us;

        } else if (own->w.code == limit->code && own->w.fresh_us > now_us
                   && !ngx_rl_told_window(limit->window_us, now_us + left_us,
                                          own->w.fresh_us))
        {
            memset(answer, 0, sizeof(*answer));
            return;
        }

        ngx_rl_fixed_window_take(&own->w, limit, now_us, left_us,
                                 limit->window_us, cost, want, answer);
        return;

    case NGX_RL_SLIDING_WINDOW:
        ngx_rl_sliding_window_take(&own->w, limit, now_us, cost, want, answer);
        return;

    default:
        ngx_rl_token_bucket_take(&own->tb, &limit->rate, now_us, cost, want,
                                 answer);
    }
}


void
sim_fleet_request(uint64_t n, uint64_t key, uint64_t request)
{
    sim_own_t        *own;
    ngx_rl_answer_t   answer;

    own = &sim_members[n].counters[key];

    sim_fleet_take(n, key, &sim.limits[0], (uint32_t) sim.cell.cost, 0, 0,
                   &answer);

    if (answer.granted) {
        if (own->end_us <= sim.now_ns / SIM_US) {
            own->spent = 0;
        }

        own->spent += (int32_t) answer.granted;
        own->end_us = (sim.cell.algorithm == NGX_RL_FIXED_WINDOW)
                      ? sim.now_ns / SIM_US + answer.reset_us : UINT64_MAX;

        if (sim_fleet_gossips()) {
            sim_members[n].known[n * sim.cell.keys + key] += answer.granted;
        }
    }

    sim_oracle_decide(request, answer.granted ? SIM_ADMITTED : SIM_DENIED,
                      SIM_NO_WAIT);
}


/* One of the two halves cannot reach the other while the network is cut. */
static unsigned
sim_fleet_reaches(uint64_t from, uint64_t to)
{
    return sim_members[from].up && sim_members[to].up
           && !(sim_cut && (from < sim.cell.nodes / 2)
                           != (to < sim.cell.nodes / 2));
}


/* Messages of a connection keep their order, whatever is lost below. */
static void
sim_fleet_send(uint64_t from, uint64_t to, const void *data, size_t len)
{
    uint64_t     delay_us, at_ns;
    sim_told_t  *told;

    if (!sim_fleet_reaches(from, to)) {
        return;
    }

    told = sim_alloc(sizeof(sim_told_t) + len);
    told->from = from;
    told->to = to;
    told->life = sim_members[to].life;
    told->len = len;
    memcpy(told->data, data, len);

    delay_us = sim.slow ? 20000 + sim_below(&sim_fleet_chance, 30000)
                        : sim.cell.delay_us
                          + sim_below(&sim_fleet_chance,
                                      sim.cell.delay_us * 4 / 3 + 1);
    at_ns = sim.now_ns + delay_us * SIM_US;

    if (sim.cell.fault == SIM_LOSS && sim_below(&sim_fleet_chance, 10) == 0) {
        at_ns += SIM_RESENT;
    }

    if (at_ns < sim_members[from].there_ns[to]) {
        at_ns = sim_members[from].there_ns[to];
    }

    sim_members[from].there_ns[to] = at_ns;
    sim_messages++;
    sim_push(at_ns, SIM_TOLD, told, 0);
}


/* Returns a message of what this node has spent, or of all that is used. */
static size_t
sim_fleet_write(uint64_t n, ngx_rl_told_e kind, u_char *buf)
{
    int32_t                tokens;
    uint64_t               key, left_us;
    sim_own_t             *own;
    ngx_rl_id_t            id;
    ngx_rl_answer_t        answer;
    ngx_rl_told_limit_t    limit;
    ngx_rl_told_writer_t   writer;

    ngx_rl_told_begin(&writer, buf, NGX_RL_TOLD_MOST, kind);
    ngx_rl_told_limit(&limit, &sim.limits[0], 1);

    for (key = 0; key < sim.cell.keys; key++) {
        own = &sim_members[n].counters[key];
        tokens = own->spent;

        sim_fleet_take(n, key, &sim.limits[0], 0, 0, 0, &answer);
        left_us = answer.reset_us;

        if (kind == NGX_RL_TOLD_STATE) {
            tokens = (int32_t) ngx_rl_told_used(&sim.limits[0], &answer, 0);

        } else {
            own->spent = 0;
            tokens = (own->end_us <= sim.now_ns / SIM_US) ? 0 : tokens;
        }

        id.hi = 0;
        id.lo = key;

        if (tokens && ngx_rl_told_add(&writer, &limit, &id, tokens,
                                      (uint32_t) (left_us / 1000), 0) != 0)
        {
            sim_die("more keys than a message has", "");
        }
    }

    return ngx_rl_told_end(&writer);
}


void
sim_fleet_tell(uint64_t n)
{
    size_t         len;
    uint64_t       to, i;
    static u_char  buf[NGX_RL_TOLD_MOST];

    if (sim_fleet_gossips()) {
        for (i = 0; i < SIM_GOSSIPED && sim.cell.nodes > 1; i++) {
            to = sim_below(&sim_fleet_chance, sim.cell.nodes - 1);
            sim_fleet_send(n, to + (to >= n), sim_members[n].known,
                           sim.cell.nodes * sim.cell.keys * sizeof(uint64_t));
        }

    } else if (sim_members[n].up) {
        len = sim_fleet_write(n, NGX_RL_TOLD_SPENT, buf);
        ngx_rl_told_seal(buf, len, sim_key, 0);

        for (to = 0; to < sim.cell.nodes; to++) {
            if (to != n && len > NGX_RL_TOLD_LEAST) {
                sim_fleet_send(n, to, buf, len);
            }
        }
    }

    if (sim.now_ns < sim.end_ns) {
        sim_fleet_next(n);
    }
}


static void
sim_fleet_state(uint64_t from, uint64_t to)
{
    size_t         len;
    static u_char  buf[NGX_RL_TOLD_MOST];

    if (!sim_fleet_gossips()) {
        len = sim_fleet_write(from, NGX_RL_TOLD_STATE, buf);
        ngx_rl_told_seal(buf, len, sim_key, 0);
        sim_fleet_send(from, to, buf, len);
    }
}


/* What is new in the sums of others. */
static void
sim_fleet_merge(sim_told_t *told)
{
    uint64_t          i, *known, sum;
    ngx_rl_answer_t   unused;

    known = sim_members[told->to].known;

    for (i = 0; i < sim.cell.nodes * sim.cell.keys; i++) {
        memcpy(&sum, told->data + i * sizeof(uint64_t), sizeof(uint64_t));

        if (sum > known[i]) {
            sim_fleet_take(told->to, i % sim.cell.keys, &sim.limits[0],
                           (uint32_t) (sum - known[i]), NGX_RL_CHARGE, 0,
                           &unused);
            known[i] = sum;
        }
    }
}


void
sim_fleet_told(void *data)
{
    sim_told_t *message = data;

    uint32_t              used;
    ngx_rl_told_t         told;
    ngx_rl_answer_t       answer;
    ngx_rl_told_reader_t  reader;

    if (message->life != sim_members[message->to].life
        || !sim_fleet_reaches(message->from, message->to))
    {
        free(message);
        return;
    }

    if (sim_fleet_gossips()) {
        sim_fleet_merge(message);
        free(message);
        return;
    }

    if (ngx_rl_told_open(&reader, message->data, message->len, sim_key, 0)
        != 0)
    {
        sim_die("a message cannot be opened", "");
    }

    while (ngx_rl_told_next(&reader, &told) == 1) {
        used = 0;

        if (reader.kind == NGX_RL_TOLD_STATE) {
            sim_fleet_take(message->to, told.id.lo, told.limit, 0, 0, 0,
                           &answer);
            used = ngx_rl_told_used(told.limit, &answer, 1);
        }

        if (told.tokens > (int32_t) used) {
            sim_fleet_take(message->to, told.id.lo, told.limit,
                           (uint32_t) told.tokens - used, NGX_RL_CHARGE,
                           (uint64_t) told.left_ms * 1000, &answer);
        }
    }

    free(message);
}


void
sim_fleet_cut(unsigned cut)
{
    uint64_t  from, to, half;

    sim_cut = cut;
    half = sim.cell.nodes / 2;

    for (from = 0; from < sim.cell.nodes && !cut; from++) {
        for (to = 0; to < sim.cell.nodes; to++) {
            if ((from < half) != (to < half)) {
                sim_fleet_state(from, to);
            }
        }
    }
}


void
sim_fleet_join(uint64_t n)
{
    uint64_t  from;

    sim_members[n].up = 1;

    for (from = 0; from < sim.cell.nodes && sim.now_ns; from++) {
        if (from != n) {
            sim_fleet_state(from, n);
        }
    }
}


/* It goes; crash: what it knows is lost, and what it has not told. */
void
sim_fleet_leave(uint64_t n, unsigned crash)
{
    sim_members[n].up = 0;
    sim_members[n].life++;

    if (crash) {
        memset(sim_members[n].counters, 0, sim.cell.keys * sizeof(sim_own_t));
    }
}
