/*
 * The store of a zone: the records of its document, as the workers of a node
 * share them. The newest is the current one; those before are its history. The
 * store knows of a record its version, its id and its bytes, nothing else.
 *
 * A worker may die anywhere in here: what is current then is the record
 * before, or the new one, whole.
 */

#ifndef NGX_RATELIMIT_STORE_H_INCLUDED
#define NGX_RATELIMIT_STORE_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#define NGX_RATELIMIT_STORE_LAYOUT   3   /* another one: memory of its own */
#define NGX_RATELIMIT_STORE_HISTORY  50  /* records before the current one */

typedef struct ngx_ratelimit_store_s  ngx_ratelimit_store_t;

typedef struct {
    uint64_t    version;
    uint64_t    id;
    ngx_str_t   text;
} ngx_ratelimit_store_entry_t;

/*
 * Bytes of a store whose records have at most max bytes each: two places for
 * the current one, and ring bytes, max at least, for the history.
 */
size_t ngx_ratelimit_store_size(size_t max, size_t ring);

/* Of zeroed memory. Returns NGX_OK, or NGX_ERROR: a lock cannot be made. */
ngx_int_t ngx_ratelimit_store_init(ngx_ratelimit_store_t *store, size_t size,
    size_t max, size_t ring);

/* Counts the publications, without a lock: 0 as long as there was none. */
uint64_t ngx_ratelimit_store_generation(const ngx_ratelimit_store_t *store);

/* Version and id of the current record, without a lock; 0 and 0: none. */
void ngx_ratelimit_store_version(const ngx_ratelimit_store_t *store,
    uint64_t *version, uint64_t *id);

/*
 * The id of a record, the current one or one of the history. Returns NGX_OK,
 * NGX_DECLINED: there is none of that version, or NGX_BUSY: others write all
 * the time.
 */
ngx_int_t ngx_ratelimit_store_id(const ngx_ratelimit_store_t *store,
    uint64_t version, uint64_t *id);

/*
 * Makes a record the current one, and the one before part of the history,
 * which loses its oldest ones. expected: a version that must be the current
 * one, with that id (0: any), or NGX_RATELIMIT_STORE_ANY. history: what becomes
 * of the one before, and of the history. Returns NGX_OK, NGX_BUSY: another
 * version is current (in *found), NGX_DECLINED: the record is too large, or
 * NGX_ERROR: the lock is broken. May be called by a thread.
 */
#define NGX_RATELIMIT_STORE_ANY  ((uint64_t) -1)

typedef enum {
    NGX_RATELIMIT_STORE_KEEP = 0,    /* the one before joins the history */
    NGX_RATELIMIT_STORE_DROP,        /* it is dropped */
    NGX_RATELIMIT_STORE_ANEW         /* and the whole history with it */
} ngx_ratelimit_store_history_e;

ngx_int_t ngx_ratelimit_store_publish(ngx_ratelimit_store_t *store,
    const ngx_ratelimit_store_entry_t *entry, uint64_t expected,
    uint64_t expected_id, ngx_ratelimit_store_history_e history,
    uint64_t *found);

/*
 * Copies a record to the heap: the current one (version 0), or one of the
 * history. *generation is that of the moment; it is also set where there is no
 * record. Returns NGX_OK (the caller frees entry->text.data with ngx_free),
 * NGX_DECLINED: there is no such one, or NGX_ERROR: memory is out. May be
 * called by a thread: nobody waits for a reader, and readers wait for nobody
 * but when they met many publications in a row.
 */
ngx_int_t ngx_ratelimit_store_read(ngx_ratelimit_store_t *store,
    uint64_t version, ngx_ratelimit_store_entry_t *entry,
    uint64_t *generation, ngx_log_t *log);

/*
 * The same of all of them: the current one, whose version and id entry has,
 * and the history, the newest first, one behind the other in entry->text.
 */
ngx_int_t ngx_ratelimit_store_read_all(ngx_ratelimit_store_t *store,
    ngx_ratelimit_store_entry_t *entry, uint64_t *generation, ngx_log_t *log);

/*
 * One worker of a node leads: it listens to Redis and writes the state file.
 * lead: the caller's main thread becomes it, where nobody alive is; returns
 * whether it is now. Until leave, or its death. nginx's single process always
 * is.
 */
ngx_uint_t ngx_ratelimit_store_lead(ngx_ratelimit_store_t *store);
void ngx_ratelimit_store_leave(ngx_ratelimit_store_t *store);

/*
 * What the leader knows, for all workers, each a word by itself: the
 * generation that stands in the state file; the fleet's last reset that this
 * node has applied, as Redis names it; when Redis last answered (ms since the
 * epoch; 0: never), and whether the last question had an answer; whether Redis
 * has ever had this gateway's record (joined); why the state could not be
 * written (errno).
 */
typedef struct {
    uint64_t    written;
    uint64_t    resets;
    uint64_t    asked_ms;
    uint64_t    reachable;
    uint64_t    refused;      /* version that is not used; 0: none */
    uint64_t    joined;
    uint64_t    error;
} ngx_ratelimit_store_stat_t;

/*
 * file: of the leader alone, the name of the state file; "written" begins anew
 * where it is another one than before.
 *
 * written: err 0: the file has the generation, else why it could not be
 * written. asked: time_ms counts where Redis was reachable.
 */
void ngx_ratelimit_store_stat(const ngx_ratelimit_store_t *store,
    ngx_ratelimit_store_stat_t *stat);
void ngx_ratelimit_store_set_file(ngx_ratelimit_store_t *store,
    const ngx_str_t *name);
void ngx_ratelimit_store_set_written(ngx_ratelimit_store_t *store,
    uint64_t generation, ngx_err_t err);
void ngx_ratelimit_store_set_resets(ngx_ratelimit_store_t *store,
    uint64_t resets);
void ngx_ratelimit_store_set_joined(ngx_ratelimit_store_t *store);
void ngx_ratelimit_store_set_asked(ngx_ratelimit_store_t *store,
    uint64_t time_ms, ngx_uint_t reachable);
void ngx_ratelimit_store_set_refused(ngx_ratelimit_store_t *store,
    uint64_t version);

#endif /* NGX_RATELIMIT_STORE_H_INCLUDED */
