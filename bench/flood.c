/*
 * What a flood of invented keys leaves of the counters of known clients: in the
 * table, and in limit_req's tree of the same size.
 *
 * Each known client has come twice. Then come ten million keys, each once; the
 * known clients stay away meanwhile ("away"), or every other request is one of
 * theirs, in turn ("coming"). A counter is kept when it has counted all of its
 * client's requests: one that was lost in between has not.
 */

#include "counters.h"
#include "tree.h"

#define FLOOD   10000000
#define ZONE    (64 * 1024 * 1024)
#define NOW     1000000
#define USES    2

#define TREE_KEYS  400000   /* more do not fit into its 64m, flood or none */

static ngx_rl_rate_t  rate;


static uint64_t
known_fresh_us(ngx_rl_table_t *table, uint64_t n)
{
    uint64_t        fresh_us;
    ngx_rl_id_t     id;
    ngx_rl_entry_t  e;

    id = key(n);
    ngx_rl_table_lock(table, &id, NOW, &e);
    fresh_us = e.state.fresh_us;
    ngx_rl_table_unlock(&e);

    return fresh_us;
}


/* Share of the clients whose counters are whole. */
static double
flood_table(uint64_t clients, int coming)
{
    uint64_t         i, uses, kept;
    ngx_rl_table_t  *table;

    table = table_make(ZONE);

    for (i = 0; i < USES * clients; i++) {
        check(table, &rate, i % clients, NOW, 1);
    }

    for (i = 0; i < FLOOD; i++) {
        check(table, &rate, clients + i, NOW, 1);

        if (coming) {
            check(table, &rate, i % clients, NOW, 1);
        }
    }

    for (i = 0, kept = 0; i < clients; i++) {
        uses = USES;

        if (coming) {
            uses += FLOOD / clients + (i < FLOOD % clients);
        }

        /* a second for each */
        kept += (known_fresh_us(table, i) == NOW + uses * 1000000);
    }

    munmap(table, ZONE);

    return (double) kept / clients;
}


static void
tree_take(tree_t *tree, uint64_t n)
{
    ngx_rl_id_t  id;

    id = key(n);

    if (tree_check(tree, &id, NOW) != NGX_OK) {
        fail("a check in the tree");
    }
}


static double
flood_tree(uint64_t clients, int coming)
{
    void         *memory;
    tree_t       *tree;
    uint64_t      i, uses, kept;
    ngx_rl_id_t   id;

    memory = map(ZONE);
    tree = tree_init(memory, ZONE, 1, 1000000);

    if (tree == NULL) {
        fail("the tree's init");
    }

    for (i = 0; i < USES * clients; i++) {
        tree_take(tree, i % clients);
    }

    for (i = 0; i < FLOOD; i++) {
        tree_take(tree, clients + i);

        if (coming) {
            tree_take(tree, i % clients);
        }
    }

    for (i = 0, kept = 0; i < clients; i++) {
        uses = USES;

        if (coming) {
            uses += FLOOD / clients + (i < FLOOD % clients);
        }

        /* the first one has none */
        id = key(i);
        kept += (tree_excess(tree, &id) == (ngx_int_t) (uses - 1) * 1000);
    }

    munmap(memory, ZONE);

    return (double) kept / clients;
}


int
main(void)
{
    size_t               i;
    ngx_rl_table_t      *table;
    ngx_rl_segments_stat_t  stat;

    static const uint64_t       clients[] = { 100000, 400000, 1000000, 1500000,
        1800000, 2100000 };

    if (ngx_rl_rate_init(&rate, 1, 1000000, 100000000) != 0) {
        fail("rate");
    }

    table = table_make(ZONE);
    ngx_rl_table_stat(table, NOW, NGX_RL_STAT_ALL, &stat);
    munmap(table, ZONE);

    printf("%d invented keys at a zone of 64m; known clients kept, %%\n"
           "%10s %10s %12s %12s %12s %12s\n", FLOOD, "known", "of slots, %",
           "table, away", "coming", "tree, away", "coming");

    for (i = 0; i < sizeof(clients) / sizeof(clients[0]); i++) {
        printf("%10lu %11.1f %12.4f %12.4f", (unsigned long) clients[i],
               100.0 * clients[i] / stat.places,
               100 * flood_table(clients[i], 0),
               100 * flood_table(clients[i], 1));
        fflush(stdout);

        if (clients[i] <= TREE_KEYS) {
            printf(" %12.4f %12.4f", 100 * flood_tree(clients[i], 0),
                   100 * flood_tree(clients[i], 1));
        }

        putchar('\n');
        fflush(stdout);
    }

    return 0;
}
