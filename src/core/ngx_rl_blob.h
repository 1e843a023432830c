/*
 * Blobs in shared memory: one process publishes one, others read it.
 *
 * The memory has room for two. A new blob becomes the newest with a single
 * store, and overwrites the one before the newest, never the newest. Readers
 * take no lock: they copy, and look afterwards whether the blob is still there.
 *
 * A writer may be killed at any instruction: then the newest blob is the one
 * before or the new one, whole, and nothing needs repair.
 */

#ifndef NGX_RL_BLOB_H_INCLUDED
#define NGX_RL_BLOB_H_INCLUDED

#include "ngx_rl_types.h"

#define NGX_RL_BLOBS  2

typedef struct ngx_rl_blob_s  ngx_rl_blob_t;

/* One blob. The caller sets version, id and len to publish it. */
typedef struct {
    uint64_t  version;    /* two numbers of the caller's, */
    uint64_t  id;         /* kept with the bytes */
    uint64_t  len;
    uint64_t  number;     /* 1 and more, in the order of publication; set by
                             publish */
} ngx_rl_blob_entry_t;


/* Bytes of the memory for blobs of at most max bytes each. */
size_t ngx_rl_blob_size(size_t max);

/* Makes it of zeroed memory, aligned to 8, without a blob. */
void ngx_rl_blob_init(ngx_rl_blob_t *blob, size_t max);

/* The number of the newest blob, 0: there is none. One load. */
uint64_t ngx_rl_blob_newest(const ngx_rl_blob_t *blob);

/*
 * Publishes new->len bytes. The caller holds a lock that keeps other writers
 * out. Returns the number of the new blob, or 0: it is too large, and nothing
 * has changed.
 */
uint64_t ngx_rl_blob_publish(ngx_rl_blob_t *blob,
    const ngx_rl_blob_entry_t *new, const u_char *bytes);

/*
 * Finds the blob of a number, as blob_newest() gives it. Returns 1, or 0: it is
 * no longer there.
 */
int ngx_rl_blob_find(const ngx_rl_blob_t *blob, uint64_t number,
    ngx_rl_blob_entry_t *entry);

/*
 * Copies a blob that was found to out, which has room for entry->len bytes.
 * Returns 1, or 0: it was overwritten meanwhile, and out is garbage. Each 0
 * means that another process has published, so a caller that reads the newest
 * blob again does not wait for a process that was killed.
 */
int ngx_rl_blob_copy(const ngx_rl_blob_t *blob,
    const ngx_rl_blob_entry_t *entry, u_char *out);

#endif /* NGX_RL_BLOB_H_INCLUDED */
