/*
 * The store: two places for the current record, a ring for those before.
 *
 * Writers have a lock, readers have none. The current record stands in the
 * place that the generation's last bit names; the next one is written to the
 * other place, and becomes the current one by a single store of the
 * generation. The history are the records numbered first to next - 1: one that
 * is to be overwritten leaves it before, one that is added joins it when it is
 * whole. A reader copies, and begins anew where generation or first have moved
 * meanwhile. So whoever dies leaves nothing to be mended: what he had begun is
 * not there.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_ratelimit_store.h"
#include "ngx_ratelimit_lock.h"

#define NGX_RATELIMIT_STORE_TRIES  16   /* a reader takes the lock then */

enum { NGX_RATELIMIT_STORE_WRITER, NGX_RATELIMIT_STORE_LEADER, LOCKS };

typedef struct {
    uint64_t  version;
    uint64_t  id;
    uint64_t  len;
    uint64_t  pos;      /* in the ring, of all bytes that ever stood there */
} ngx_ratelimit_store_head_t;

struct ngx_ratelimit_store_s {
    ngx_ratelimit_lock_t        locks[LOCKS];
    size_t                      max;
    size_t                      ring;      /* bytes of it */

    _Atomic uint64_t            generation;
    ngx_ratelimit_store_head_t  current[2];

    _Atomic uint64_t            first;     /* numbers of the history */
    _Atomic uint64_t            next;
    ngx_ratelimit_store_head_t  history[NGX_RATELIMIT_STORE_HISTORY];

    _Atomic ngx_pid_t           leader;    /* by who has the lock */

    _Atomic uint64_t            file;      /* a hash of its name; 0: none */
    _Atomic uint64_t            written;
    _Atomic uint64_t            resets;
    _Atomic uint64_t            asked_ms;
    _Atomic uint64_t            reachable;
    _Atomic uint64_t            refused;
    _Atomic uint64_t            joined;
    _Atomic uint64_t            error;

    u_char                      bytes[];   /* two places, and the ring */
};

/* What stood in the store at one moment: the current record, then history. */
typedef struct {
    uint64_t                    generation;
    uint64_t                    first;
    ngx_uint_t                  n;
    ngx_ratelimit_store_head_t  heads[1 + NGX_RATELIMIT_STORE_HISTORY];
} ngx_ratelimit_store_look_t;

/* which records of a look are read: all of them, or else one */
#define NGX_RATELIMIT_STORE_ALL  ((ngx_uint_t) -1)

static void ngx_ratelimit_store_keep(ngx_ratelimit_store_t *store,
    const ngx_ratelimit_store_head_t *head, const u_char *text);
static ngx_int_t ngx_ratelimit_store_copy(ngx_ratelimit_store_t *store,
    uint64_t version, ngx_uint_t all, ngx_ratelimit_store_entry_t *entry,
    uint64_t *generation, ngx_log_t *log);
static ngx_int_t ngx_ratelimit_store_try(ngx_ratelimit_store_t *store,
    uint64_t version, ngx_uint_t all, ngx_ratelimit_store_entry_t *entry,
    uint64_t *generation, ngx_log_t *log);
static ngx_uint_t ngx_ratelimit_store_look(const ngx_ratelimit_store_t *store,
    ngx_ratelimit_store_look_t *look);
static ngx_uint_t ngx_ratelimit_store_still(const ngx_ratelimit_store_t *store,
    const ngx_ratelimit_store_look_t *look);
static u_char *ngx_ratelimit_store_out(const ngx_ratelimit_store_t *store,
    const ngx_ratelimit_store_look_t *look, ngx_uint_t i, u_char *out);


size_t
ngx_ratelimit_store_size(size_t max, size_t ring)
{
    return sizeof(ngx_ratelimit_store_t) + 2 * max + ring;
}


ngx_int_t
ngx_ratelimit_store_init(ngx_ratelimit_store_t *store, size_t size,
    size_t max, size_t ring)
{
    if (max == 0 || ring < max || size < ngx_ratelimit_store_size(max, ring)) {
        return NGX_ERROR;
    }

    store->max = max;
    store->ring = ring;

    return ngx_ratelimit_locks_init(store->locks, sizeof(ngx_ratelimit_lock_t),
                                    LOCKS);
}


uint64_t
ngx_ratelimit_store_generation(const ngx_ratelimit_store_t *store)
{
    return atomic_load(&store->generation);
}


void
ngx_ratelimit_store_version(const ngx_ratelimit_store_t *store,
    uint64_t *version, uint64_t *id)
{
    uint64_t  generation;

    do {
        generation = atomic_load(&store->generation);

        if (generation == 0) {
            *version = 0;
            *id = 0;
            return;
        }

        *version = store->current[generation & 1].version;
        *id = store->current[generation & 1].id;

        atomic_thread_fence(memory_order_acquire);

    } while (atomic_load(&store->generation) != generation);
}


ngx_int_t
ngx_ratelimit_store_publish(ngx_ratelimit_store_t *store,
    const ngx_ratelimit_store_entry_t *entry, uint64_t expected,
    uint64_t expected_id, ngx_ratelimit_store_history_e history,
    uint64_t *found)
{
    u_char                      *old, *new;
    uint64_t                     generation, version;
    ngx_ratelimit_store_head_t  *head;

    if (entry->text.len > store->max) {
        return NGX_DECLINED;
    }

    if (ngx_ratelimit_lock(&store->locks[NGX_RATELIMIT_STORE_WRITER])
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    generation = atomic_load(&store->generation);
    head = &store->current[generation & 1];
    version = generation ? head->version : 0;

    if (expected != NGX_RATELIMIT_STORE_ANY
        && (expected != version
            || (expected_id && generation && expected_id != head->id)))
    {
        ngx_ratelimit_unlock(&store->locks[NGX_RATELIMIT_STORE_WRITER]);
        *found = version;
        return NGX_BUSY;
    }

    old = store->bytes + (generation & 1) * store->max;
    new = store->bytes + (~generation & 1) * store->max;

    if (history == NGX_RATELIMIT_STORE_ANEW) {
        atomic_store(&store->first, atomic_load(&store->next));

    } else if (generation && history == NGX_RATELIMIT_STORE_KEEP) {
        ngx_ratelimit_store_keep(store, head, old);
    }

    /* who still reads this place sees that its generation has gone */
    atomic_thread_fence(memory_order_seq_cst);

    head = &store->current[~generation & 1];
    head->version = entry->version;
    head->id = entry->id;
    head->len = entry->text.len;
    ngx_memcpy(new, entry->text.data, entry->text.len);

    atomic_store(&store->generation, generation + 1);

    ngx_ratelimit_unlock(&store->locks[NGX_RATELIMIT_STORE_WRITER]);

    return NGX_OK;
}


/*
 * Adds the current record to the history. It is there already where it was
 * published twice, or where somebody died between this and making another one
 * the current.
 */
static void
ngx_ratelimit_store_keep(ngx_ratelimit_store_t *store,
    const ngx_ratelimit_store_head_t *head, const u_char *text)
{
    size_t                       offset, n;
    u_char                      *ring;
    uint64_t                     first, next, end;
    ngx_ratelimit_store_head_t  *last, *slot;

    first = atomic_load(&store->first);
    next = atomic_load(&store->next);
    end = 0;

    if (next) {
        last = &store->history[(next - 1) % NGX_RATELIMIT_STORE_HISTORY];
        end = last->pos + last->len;

        if (first < next && last->version == head->version
            && last->id == head->id)
        {
            return;
        }
    }

    while (first < next
           && (next - first == NGX_RATELIMIT_STORE_HISTORY
               || end + head->len
                  - store->history[first % NGX_RATELIMIT_STORE_HISTORY].pos
                  > store->ring))
    {
        first++;
    }

    atomic_store(&store->first, first);
    atomic_thread_fence(memory_order_seq_cst);

    slot = &store->history[next % NGX_RATELIMIT_STORE_HISTORY];
    *slot = *head;
    slot->pos = end;

    ring = store->bytes + 2 * store->max;
    offset = end % store->ring;
    n = ngx_min(head->len, store->ring - offset);

    ngx_memcpy(ring + offset, text, n);
    ngx_memcpy(ring, text + n, head->len - n);

    atomic_store(&store->next, next + 1);
}


ngx_int_t
ngx_ratelimit_store_id(const ngx_ratelimit_store_t *store, uint64_t version,
    uint64_t *id)
{
    ngx_uint_t                   i, k;
    ngx_ratelimit_store_look_t   look;

    for (i = 0; i < NGX_RATELIMIT_STORE_TRIES; i++) {

        if (!ngx_ratelimit_store_look(store, &look)) {
            continue;
        }

        for (k = 0; k < look.n; k++) {
            if (look.heads[k].version == version) {
                *id = look.heads[k].id;
                return NGX_OK;
            }
        }

        return NGX_DECLINED;
    }

    return NGX_BUSY;
}


ngx_int_t
ngx_ratelimit_store_read(ngx_ratelimit_store_t *store, uint64_t version,
    ngx_ratelimit_store_entry_t *entry, uint64_t *generation, ngx_log_t *log)
{
    return ngx_ratelimit_store_copy(store, version, 0, entry, generation, log);
}


ngx_int_t
ngx_ratelimit_store_read_all(ngx_ratelimit_store_t *store,
    ngx_ratelimit_store_entry_t *entry, uint64_t *generation, ngx_log_t *log)
{
    return ngx_ratelimit_store_copy(store, 0, 1, entry, generation, log);
}


static ngx_int_t
ngx_ratelimit_store_copy(ngx_ratelimit_store_t *store, uint64_t version,
    ngx_uint_t all, ngx_ratelimit_store_entry_t *entry, uint64_t *generation,
    ngx_log_t *log)
{
    ngx_int_t   rc;
    ngx_uint_t  i;

    for (i = 0; i < NGX_RATELIMIT_STORE_TRIES; i++) {
        rc = ngx_ratelimit_store_try(store, version, all, entry, generation,
                                     log);
        if (rc != NGX_AGAIN) {
            return rc;
        }
    }

    if (ngx_ratelimit_lock(&store->locks[NGX_RATELIMIT_STORE_WRITER])
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_ratelimit_store_try(store, version, all, entry, generation, log);

    ngx_ratelimit_unlock(&store->locks[NGX_RATELIMIT_STORE_WRITER]);

    return rc;
}


/* NGX_AGAIN: somebody has written meanwhile. */
static ngx_int_t
ngx_ratelimit_store_try(ngx_ratelimit_store_t *store, uint64_t version,
    ngx_uint_t all, ngx_ratelimit_store_entry_t *entry, uint64_t *generation,
    ngx_log_t *log)
{
    size_t                       len;
    u_char                      *p;
    ngx_uint_t                   i, from, to;
    ngx_ratelimit_store_look_t   look;

    if (!ngx_ratelimit_store_look(store, &look)) {
        return NGX_AGAIN;
    }

    *generation = look.generation;

    for (from = 0; from < look.n; from++) {
        if (version == 0 || look.heads[from].version == version) {
            break;
        }
    }

    if (from == look.n) {
        return NGX_DECLINED;
    }

    to = all ? look.n : from + 1;

    for (i = from, len = 0; i < to; i++) {
        len += look.heads[i].len;
    }

    p = ngx_alloc(len ? len : 1, log);

    if (p == NULL) {
        return NGX_ERROR;
    }

    entry->version = look.heads[from].version;
    entry->id = look.heads[from].id;
    entry->text.data = p;
    entry->text.len = len;

    for (i = from; i < to; i++) {
        p = ngx_ratelimit_store_out(store, &look, i, p);
    }

    if (!ngx_ratelimit_store_still(store, &look)) {
        ngx_free(entry->text.data);
        return NGX_AGAIN;
    }

    return NGX_OK;
}


/* Returns 0 where somebody has written meanwhile. */
static ngx_uint_t
ngx_ratelimit_store_look(const ngx_ratelimit_store_t *store,
    ngx_ratelimit_store_look_t *look)
{
    uint64_t                     n, next;
    ngx_ratelimit_store_head_t  *head;

    look->n = 0;
    look->generation = atomic_load(&store->generation);
    look->first = atomic_load(&store->first);

    if (look->generation == 0) {
        return 1;
    }

    next = atomic_load(&store->next);
    look->heads[look->n++] = store->current[look->generation & 1];

    for (n = next; n > look->first; n--) {

        if (look->n > NGX_RATELIMIT_STORE_HISTORY) {
            return 0;
        }

        head = &look->heads[look->n++];
        *head = store->history[(n - 1) % NGX_RATELIMIT_STORE_HISTORY];

        /* who adds the current record to the history makes another one next */

        if (n == next && head->version == look->heads[0].version
            && head->id == look->heads[0].id)
        {
            look->n--;
        }
    }

    return ngx_ratelimit_store_still(store, look);
}


static ngx_uint_t
ngx_ratelimit_store_still(const ngx_ratelimit_store_t *store,
    const ngx_ratelimit_store_look_t *look)
{
    atomic_thread_fence(memory_order_acquire);

    return atomic_load(&store->generation) == look->generation
           && atomic_load(&store->first) == look->first;
}


/* Copies record i of a look, returns the end. */
static u_char *
ngx_ratelimit_store_out(const ngx_ratelimit_store_t *store,
    const ngx_ratelimit_store_look_t *look, ngx_uint_t i, u_char *out)
{
    size_t                             offset, n;
    const u_char                      *ring;
    const ngx_ratelimit_store_head_t  *head;

    head = &look->heads[i];

    if (i == 0) {
        return ngx_cpymem(out,
                          store->bytes + (look->generation & 1) * store->max,
                          head->len);
    }

    ring = store->bytes + 2 * store->max;
    offset = head->pos % store->ring;
    n = ngx_min(head->len, store->ring - offset);

    out = ngx_cpymem(out, ring + offset, n);

    return ngx_cpymem(out, ring, head->len - n);
}


/*
 * nginx's single process unmaps the memory of old cycles: a robust lock held
 * there would break the list of those it holds.
 */
ngx_uint_t
ngx_ratelimit_store_lead(ngx_ratelimit_store_t *store)
{
    ngx_int_t  rc;

    if (ngx_process == NGX_PROCESS_SINGLE) {
        return 1;
    }

    rc = ngx_ratelimit_lock_try(&store->locks[NGX_RATELIMIT_STORE_LEADER]);

    if (rc == NGX_OK) {
        atomic_store(&store->leader, ngx_pid);
        return 1;
    }

    /* no living other has it: it is the caller's, or broken */

    return rc == NGX_ERROR && atomic_load(&store->leader) == ngx_pid;
}


void
ngx_ratelimit_store_leave(ngx_ratelimit_store_t *store)
{
    if (ngx_process == NGX_PROCESS_SINGLE
        || atomic_load(&store->leader) != ngx_pid)
    {
        return;
    }

    atomic_store(&store->leader, 0);
    ngx_ratelimit_unlock(&store->locks[NGX_RATELIMIT_STORE_LEADER]);
}


void
ngx_ratelimit_store_stat(const ngx_ratelimit_store_t *store,
    ngx_ratelimit_store_stat_t *stat)
{
    stat->written = atomic_load(&store->written);
    stat->resets = atomic_load(&store->resets);
    stat->asked_ms = atomic_load(&store->asked_ms);
    stat->reachable = atomic_load(&store->reachable);
    stat->refused = atomic_load(&store->refused);
    stat->joined = atomic_load(&store->joined);
    stat->error = atomic_load(&store->error);
}


/* FNV-1a: whoever chooses the names may do what he likes with the files. */
void
ngx_ratelimit_store_set_file(ngx_ratelimit_store_t *store,
    const ngx_str_t *name)
{
    size_t    i;
    uint64_t  file;

    file = 0xcbf29ce484222325ULL;

    for (i = 0; i < name->len; i++) {
        file = (file ^ name->data[i]) * 0x100000001b3ULL;
    }

    if (atomic_load(&store->file) != file) {
        atomic_store(&store->written, 0);
        atomic_store(&store->error, 0);
        atomic_store(&store->file, file);
    }
}


void
ngx_ratelimit_store_set_written(ngx_ratelimit_store_t *store,
    uint64_t generation, ngx_err_t err)
{
    if (err == 0) {
        atomic_store(&store->written, generation);
    }

    atomic_store(&store->error, (uint64_t) err);
}


void
ngx_ratelimit_store_set_resets(ngx_ratelimit_store_t *store, uint64_t resets)
{
    atomic_store(&store->resets, resets);
}


void
ngx_ratelimit_store_set_joined(ngx_ratelimit_store_t *store)
{
    atomic_store(&store->joined, 1);
}


void
ngx_ratelimit_store_set_asked(ngx_ratelimit_store_t *store, uint64_t time_ms,
    ngx_uint_t reachable)
{
    if (reachable) {
        atomic_store(&store->asked_ms, time_ms);
    }

    atomic_store(&store->reachable, reachable ? 1 : 0);
}


void
ngx_ratelimit_store_set_refused(ngx_ratelimit_store_t *store,
    uint64_t version)
{
    atomic_store(&store->refused, version);
}
