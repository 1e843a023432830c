/*
 * The state file of a zone: the records of its document, the newest first. It
 * is written as "<file>.tmp", synced, and renamed; the file before becomes
 * "<file>.old". All of this blocks: in a job, or before a worker serves.
 */

#ifndef NGX_RATELIMIT_STATE_H_INCLUDED
#define NGX_RATELIMIT_STATE_H_INCLUDED

#include "ngx_ratelimit_record.h"

/*
 * Reads the good records of a state file: all of them, in their order, as one
 * text in pool. Where the first one is not whole, the file is set aside as
 * "<file>.corrupt" (unless only test is set: "nginx -t" changes nothing), with
 * a message, and "<file>.old" is read instead. Returns NGX_OK (text may be
 * empty: there is no file), or NGX_ERROR: it cannot be read (logged).
 */
ngx_int_t ngx_ratelimit_state_read(const ngx_str_t *file, ngx_pool_t *pool,
    ngx_uint_t test, ngx_str_t *text, ngx_log_t *log);

/*
 * Writes a state file. Returns NULL, or which step failed, as a constant string,
 * and errno in *err: then the file before is as it was.
 */
const char *ngx_ratelimit_state_write(const ngx_str_t *file,
    const ngx_str_t *text, ngx_err_t *err);

#endif /* NGX_RATELIMIT_STATE_H_INCLUDED */
