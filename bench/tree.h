/*
 * The peer of bench/table.c and bench/flood.c: the counters of limit_req, a red
 * and black tree in a slab pool under one lock, on nginx's own ngx_rbtree.c,
 * ngx_slab.c and ngx_shmtx.c.
 */

#ifndef BENCH_TREE_H_INCLUDED
#define BENCH_TREE_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_rl_types.h"

typedef struct tree_s  tree_t;

/*
 * A tree in size zeroed bytes of shared memory, aligned to a page. The rate is
 * in requests a second, the burst in requests. Returns NULL where it does not
 * fit. Must run before any process uses it.
 */
tree_t *tree_init(void *memory, size_t size, ngx_uint_t rate, ngx_uint_t burst);

/* Each process calls this once: the lock holds the number of its owner. */
void tree_process(void);

/*
 * One check as limit_req makes it, by a key of 16 bytes. Returns NGX_OK,
 * NGX_BUSY above the burst, or NGX_ERROR: there is no memory for a new key.
 */
ngx_int_t tree_check(tree_t *tree, const ngx_rl_id_t *id, ngx_msec_t now);

/* The key's excess, in thousandths of a request; -1 without a counter. */
ngx_int_t tree_excess(tree_t *tree, const ngx_rl_id_t *id);

/* How many counters there are, and the bytes of the pages they take. */
ngx_uint_t tree_count(tree_t *tree);
size_t tree_bytes(tree_t *tree);

#endif /* BENCH_TREE_H_INCLUDED */
