/*
 * The store of a zone: the current record of its document, as the workers of a
 * gateway share it, and what the leading worker knows for all of them. The
 * store knows the version, the id and the bytes of a record, nothing else.
 *
 * A worker may be killed at any instruction: the current record is then the
 * one before or the new one, whole.
 */

#ifndef NGX_RL_STORE_H_INCLUDED
#define NGX_RL_STORE_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_rl_blob.h"
#include "ngx_rl_lock.h"

#define NGX_RL_STORE_LAYOUT   9   /* another one: memory of its own */
#define NGX_RL_STORE_PAST     50  /* records that are known by their ids */

typedef struct {
    uint64_t       version;
    uint64_t       id;
} ngx_rl_store_past_t;

/* Zeroed before init. Offsets, no pointers: it may be mapped anywhere. */
typedef struct {
    ngx_rl_lock_t  write_lock;
    ngx_rl_lock_t  leader;     /* listens to Redis, writes the state file */
    size_t         max;        /* bytes of a record */

    /* of the last generations, under write_lock */
    ngx_rl_store_past_t   past[NGX_RL_STORE_PAST];

    /* Each by itself; written by the leader, but for resets. */
    _Atomic uint64_t      file;       /* hash of the state file's name */
    _Atomic uint64_t      written;    /* generation that stands there */
    _Atomic uint64_t      error;      /* errno: why it could not be written */
    _Atomic uint64_t      resets;     /* the fleet's last reset that this
                                         gateway has applied, by Redis */
    _Atomic uint64_t      asked_ms;   /* Redis has last answered, since the
                                         epoch; 0: never */
    _Atomic uint64_t      reachable;  /* its last question had an answer */
    _Atomic uint64_t      refused;    /* version that is not used; 0: none */
    _Atomic uint64_t      joined;     /* Redis once had this gateway's record */
    _Atomic uint64_t      base;       /* of proposals: id of the version that
                                         the current one is made of */
    _Atomic uint64_t      until_ms;   /* of proposals: it is told until then */
    _Atomic uint64_t      upgraded;   /* another nginx binary has taken over
                                         the state file */
} ngx_rl_store_t;

typedef struct {
    uint64_t    version;
    uint64_t    id;
    uint64_t    generation;   /* of its publication; set by read */
    ngx_str_t   text;
} ngx_rl_store_entry_t;

/* Bytes of a store whose records have at most max bytes each. */
size_t ngx_rl_store_size(size_t max);

/* Makes a store in zeroed memory. Returns NGX_OK, or NGX_ERROR: too small. */
ngx_int_t ngx_rl_store_init(ngx_rl_store_t *store, size_t size, size_t max);

/* Counts the publications: 0 as long as there was none. */
uint64_t ngx_rl_store_generation(const ngx_rl_store_t *store);

/* Version and id of the current record; 0 and 0: there is none. */
void ngx_rl_store_version(const ngx_rl_store_t *store, uint64_t *version,
    uint64_t *id);

/* Whether this version, with that id, is or was current, not long ago. */
ngx_uint_t ngx_rl_store_had(ngx_rl_store_t *store, uint64_t version,
    uint64_t id);

/*
 * Makes a record the current one. expected: the version that must be current,
 * with that id, or ANY. Returns NGX_OK, NGX_BUSY: another version is current,
 * or NGX_DECLINED: the record is too large. May be called by a thread.
 */
#define NGX_RL_STORE_ANY  ((uint64_t) -1)

ngx_int_t ngx_rl_store_publish(ngx_rl_store_t *store,
    const ngx_rl_store_entry_t *entry, uint64_t expected, uint64_t expected_id);

/*
 * Copies the current record to pool. Returns NGX_OK, NGX_DECLINED: there is
 * none, or NGX_ERROR: memory is out. Takes no lock; may be called by a thread.
 */
ngx_int_t ngx_rl_store_read(const ngx_rl_store_t *store, ngx_pool_t *pool,
    ngx_rl_store_entry_t *entry);

/*
 * The leader says which state file it writes: where that is another one than
 * before, nothing is written there so far.
 */
void ngx_rl_store_set_file(ngx_rl_store_t *store, const ngx_str_t *name);

#endif /* NGX_RL_STORE_H_INCLUDED */
