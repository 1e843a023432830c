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
 * text in pool; they end before the first that is not whole. Where that is the
 * first of all, the file is set aside as "<file>.corrupt" (unless test is set:
 * "nginx -t" changes nothing). Then, and where there is no file, "<file>.old"
 * is read instead: to forget a document, both have to go. All of it is logged.
 * Returns NGX_OK (text is empty: there is none), or NGX_ERROR: it cannot be
 * read, or memory is out (logged).
 */
ngx_int_t ngx_ratelimit_state_read(const ngx_str_t *file, ngx_pool_t *pool,
    ngx_uint_t test, ngx_str_t *text, ngx_log_t *log);

/*
 * Writes a state file. Returns NULL, or which step failed, as a constant
 * string, and errno in *err: then the file before is as it was, unless all
 * that failed is the last step, the folder's fsync(). Who finds another
 * process writing the same file waits for a second, and fails with NGX_EAGAIN
 * then.
 */
const char *ngx_ratelimit_state_write(const ngx_str_t *file,
    const ngx_str_t *text, ngx_err_t *err);

/*
 * The same, but for a file that another nginx has written meanwhile, as while
 * a binary is upgraded: where its newest record has a higher version, or the
 * same and another id, it stays as it is, and the step is
 * ngx_ratelimit_state_newer.
 */
extern const char  ngx_ratelimit_state_newer[];

const char *ngx_ratelimit_state_replace(const ngx_str_t *file,
    const ngx_str_t *text, uint64_t version, uint64_t id, ngx_log_t *log,
    ngx_err_t *err);

/*
 * Version and id of the newest record of a state file, as its head has them:
 * whether the record is whole peek() and good() say. Returns NGX_OK, or
 * NGX_DECLINED: there is none, or none that can be read.
 */
ngx_int_t ngx_ratelimit_state_newest(const ngx_str_t *file, uint64_t *version,
    uint64_t *id, ngx_log_t *log);

/*
 * As read(), of a file alone, which stays what it is. Returns NGX_OK,
 * NGX_DECLINED: nothing good is there, or NGX_ERROR: it cannot be read now, or
 * memory is out (both logged). good: whether there is, for all that is known.
 */
ngx_uint_t ngx_ratelimit_state_good(const ngx_str_t *file, ngx_log_t *log);
ngx_int_t ngx_ratelimit_state_peek(const ngx_str_t *file, ngx_pool_t *pool,
    ngx_str_t *text, ngx_log_t *log);

#endif /* NGX_RATELIMIT_STATE_H_INCLUDED */
