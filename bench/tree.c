/*
 * What limit_req does for a request, with what it does it: the node and its
 * fields, the queue of the least recently used, the two it looks at for being
 * expired whenever it makes a new one, one lock around all.
 *
 * The hash of the key, which limit_req takes over the text and the module too,
 * is left out of both: the key is an id, its hash a part of that.
 */

#include "tree.h"

typedef struct {
    u_char         color;
    u_char         dummy;
    u_short        len;
    ngx_queue_t    queue;
    ngx_msec_t     last;
    ngx_uint_t     excess;    /* thousandths of a request */
    ngx_uint_t     count;
    u_char         data[1];
} tree_node_t;

struct tree_s {
    ngx_rbtree_t       rbtree;
    ngx_rbtree_node_t  sentinel;
    ngx_queue_t        queue;
    ngx_slab_pool_t   *pool;
    ngx_uint_t         rate;
    ngx_uint_t         burst;
    ngx_uint_t         nodes;
};

#define TREE_NODE_SIZE                                                        \
    (offsetof(ngx_rbtree_node_t, color) + offsetof(tree_node_t, data)         \
     + sizeof(ngx_rl_id_t))

/* What the three files of nginx need of the rest of it. */
ngx_uint_t             ngx_pagesize;
ngx_uint_t             ngx_pagesize_shift;
ngx_int_t              ngx_ncpu;
ngx_pid_t              ngx_pid;
static ngx_log_t       tree_log;
static ngx_cycle_t     tree_cycle;
volatile ngx_cycle_t  *ngx_cycle = &tree_cycle;

static void tree_insert_value(ngx_rbtree_node_t *temp, ngx_rbtree_node_t *node,
    ngx_rbtree_node_t *sentinel);
static ngx_rbtree_node_t *tree_find(tree_t *tree, const ngx_rl_id_t *id);
static ngx_int_t tree_charge(tree_t *tree, tree_node_t *n, ngx_msec_t now);
static ngx_int_t tree_add(tree_t *tree, const ngx_rl_id_t *id, ngx_msec_t now);
static void tree_expire(tree_t *tree, ngx_msec_t now, ngx_uint_t n);


void
ngx_log_error_core(ngx_uint_t level, ngx_log_t *log, ngx_err_t err,
    const char *fmt, ...)
{
    (void) level;
    (void) log;
    (void) err;
    (void) fmt;
}


void
ngx_debug_point(void)
{
    fprintf(stderr, "bench: the slab pool is broken\n");
    abort();
}


static ngx_inline tree_node_t *
tree_node(ngx_rbtree_node_t *node)
{
    return (tree_node_t *) &node->color;
}


static ngx_inline ngx_uint_t
tree_hash(const ngx_rl_id_t *id)
{
    return (uint32_t) id->hi;
}


/* Once: ngx_slab_sizes_init() adds up. */
static void
tree_globals(void)
{
    ngx_uint_t  n;

    if (ngx_pagesize != 0) {
        return;
    }

    tree_cycle.log = &tree_log;
    ngx_ncpu = sysconf(_SC_NPROCESSORS_ONLN);
    ngx_pagesize = getpagesize();

    for (n = ngx_pagesize; n >>= 1; ngx_pagesize_shift++) { /* void */ }

    ngx_slab_sizes_init();
}


tree_t *
tree_init(void *memory, size_t size, ngx_uint_t rate, ngx_uint_t burst)
{
    tree_t           *tree;
    ngx_slab_pool_t  *pool;

    tree_globals();
    tree_process();

    pool = memory;
    pool->end = (u_char *) memory + size;
    pool->min_shift = 3;
    pool->addr = memory;

    if (ngx_shmtx_create(&pool->mutex, &pool->lock, NULL) != NGX_OK) {
        return NULL;
    }

    ngx_slab_init(pool);
    pool->log_nomem = 0;

    tree = ngx_slab_alloc(pool, sizeof(tree_t));
    if (tree == NULL) {
        return NULL;
    }

    ngx_rbtree_init(&tree->rbtree, &tree->sentinel, tree_insert_value);
    ngx_queue_init(&tree->queue);

    tree->pool = pool;
    tree->rate = rate * 1000;
    tree->burst = burst * 1000;
    tree->nodes = 0;

    return tree;
}


void
tree_process(void)
{
    ngx_pid = getpid();
}


/* As ngx_memn2cmp(): all keys are of one length here. */
static ngx_int_t
tree_compare(const void *key, const tree_node_t *n)
{
    return memcmp(key, n->data, n->len);
}


static void
tree_insert_value(ngx_rbtree_node_t *temp, ngx_rbtree_node_t *node,
    ngx_rbtree_node_t *sentinel)
{
    ngx_uint_t           left;
    ngx_rbtree_node_t  **p;

    for ( ;; ) {
        left = node->key < temp->key
               || (node->key == temp->key
                   && tree_compare(tree_node(node)->data,
                                   tree_node(temp)) < 0);

        p = left ? &temp->left : &temp->right;

        if (*p == sentinel) {
            break;
        }

        temp = *p;
    }

    *p = node;
    node->parent = temp;
    node->left = sentinel;
    node->right = sentinel;
    ngx_rbt_red(node);
}


ngx_int_t
tree_check(tree_t *tree, const ngx_rl_id_t *id, ngx_msec_t now)
{
    ngx_int_t           rc;
    ngx_rbtree_node_t  *node;

    ngx_shmtx_lock(&tree->pool->mutex);

    node = tree_find(tree, id);

    rc = node != NULL ? tree_charge(tree, tree_node(node), now)
                      : tree_add(tree, id, now);

    ngx_shmtx_unlock(&tree->pool->mutex);

    return rc;
}


static ngx_rbtree_node_t *
tree_find(tree_t *tree, const ngx_rl_id_t *id)
{
    ngx_int_t           rc;
    ngx_uint_t          hash;
    ngx_rbtree_node_t  *node;

    hash = tree_hash(id);
    node = tree->rbtree.root;

    while (node != tree->rbtree.sentinel) {

        if (hash != node->key) {
            node = hash < node->key ? node->left : node->right;
            continue;
        }

        rc = tree_compare(id, tree_node(node));

        if (rc == 0) {
            return node;
        }

        node = rc < 0 ? node->left : node->right;
    }

    return NULL;
}


static ngx_int_t
tree_charge(tree_t *tree, tree_node_t *n, ngx_msec_t now)
{
    ngx_int_t       excess;
    ngx_msec_int_t  ms;

    ngx_queue_remove(&n->queue);
    ngx_queue_insert_head(&tree->queue, &n->queue);

    ms = ngx_max((ngx_msec_int_t) (now - n->last), 0);
    excess = n->excess - tree->rate * ms / 1000 + 1000;
    excess = ngx_max(excess, 0);

    if ((ngx_uint_t) excess > tree->burst) {
        return NGX_BUSY;
    }

    n->excess = excess;

    if (ms) {
        n->last = now;
    }

    return NGX_OK;
}


static ngx_int_t
tree_add(tree_t *tree, const ngx_rl_id_t *id, ngx_msec_t now)
{
    tree_node_t        *n;
    ngx_rbtree_node_t  *node;

    tree_expire(tree, now, 1);

    node = ngx_slab_alloc_locked(tree->pool, TREE_NODE_SIZE);

    if (node == NULL) {
        tree_expire(tree, now, 0);

        node = ngx_slab_alloc_locked(tree->pool, TREE_NODE_SIZE);
        if (node == NULL) {
            return NGX_ERROR;
        }
    }

    node->key = tree_hash(id);

    n = tree_node(node);
    n->len = sizeof(*id);
    n->excess = 0;
    n->last = now;
    n->count = 0;
    ngx_memcpy(n->data, id, sizeof(*id));

    ngx_rbtree_insert(&tree->rbtree, node);
    ngx_queue_insert_head(&tree->queue, &n->queue);
    tree->nodes++;

    return NGX_OK;
}


/*
 * Frees of the least recently used: with n 1 the two last where they are a
 * minute old and not in use, with 0 the last one in any case.
 */
static void
tree_expire(tree_t *tree, ngx_msec_t now, ngx_uint_t n)
{
    tree_node_t        *last;
    ngx_queue_t        *q;
    ngx_msec_int_t      ms;
    ngx_rbtree_node_t  *node;

    while (n < 3 && !ngx_queue_empty(&tree->queue)) {

        q = ngx_queue_last(&tree->queue);
        last = ngx_queue_data(q, tree_node_t, queue);

        if (n++ != 0) {
            ms = ngx_abs((ngx_msec_int_t) (now - last->last));

            if (ms < 60000
                || (ngx_int_t) (last->excess - tree->rate * ms / 1000) > 0)
            {
                return;
            }
        }

        ngx_queue_remove(q);

        node = (ngx_rbtree_node_t *)
                   ((u_char *) last - offsetof(ngx_rbtree_node_t, color));

        ngx_rbtree_delete(&tree->rbtree, node);
        ngx_slab_free_locked(tree->pool, node);
        tree->nodes--;
    }
}


ngx_int_t
tree_excess(tree_t *tree, const ngx_rl_id_t *id)
{
    ngx_int_t           excess;
    ngx_rbtree_node_t  *node;

    ngx_shmtx_lock(&tree->pool->mutex);

    node = tree_find(tree, id);
    excess = node != NULL ? (ngx_int_t) tree_node(node)->excess : -1;

    ngx_shmtx_unlock(&tree->pool->mutex);

    return excess;
}


ngx_uint_t
tree_count(tree_t *tree)
{
    return tree->nodes;
}


size_t
tree_bytes(tree_t *tree)
{
    ngx_slab_pool_t  *pool;

    pool = tree->pool;

    return (size_t) (pool->last - pool->pages - pool->pfree)
           * (ngx_pagesize + sizeof(ngx_slab_page_t));
}
