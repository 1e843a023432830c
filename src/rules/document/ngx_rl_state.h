/*
 * The state file of a zone: the records of its document, the newest first. It
 * is written as "<file>.tmp", synced, and renamed; the file before becomes
 * "<file>.old". All of this blocks: in a job, or before a worker serves.
 */

#ifndef NGX_RL_STATE_H_INCLUDED
#define NGX_RL_STATE_H_INCLUDED

#include "ngx_rl_record.h"

/*
 * Reads the good records of a state file: all of them, in their order, as one
 * text in pool; they end before the first that is not whole. If that is the
 * first of all, the file is set aside as "<file>.corrupt" (unless test is set:
 * "nginx -t" changes nothing). Then, and if there is no file, "<file>.old" is
 * read instead: to forget a document, both have to go. All of it is logged.
 * Returns NGX_OK, NGX_DECLINED: text is not the file's, but the old one's, or
 * empty; or NGX_ERROR: it cannot be read now, or memory is out (logged).
 */
ngx_int_t ngx_rl_state_read(const ngx_str_t *file, ngx_pool_t *pool,
    ngx_uint_t test, ngx_str_t *text, ngx_log_t *log);

/*
 * Writes a state file. Returns NULL, or which step failed, as a constant
 * string, and errno in *err. If the last step failed, the folder's fsync(), the
 * new file is there. If another one failed, the file before is as it was, or
 * became "<file>.old". The errno is NGX_EAGAIN while another process writes the
 * same file.
 */
const char *ngx_rl_state_write(const ngx_str_t *file, const ngx_str_t *text,
    ngx_err_t *err);

/*
 * Whether the workers of a master may make files in the folder of a state file:
 * they run as user, whose name is username, and group. A master that is not
 * root has workers of its own user. Returns NGX_OK, NGX_DECLINED: they may not,
 * and ngx_errno says why; or NGX_ERROR: the master cannot become root again.
 */
ngx_int_t ngx_rl_state_check(const ngx_str_t *file, ngx_uid_t user,
    ngx_gid_t group, const char *username);

#endif /* NGX_RL_STATE_H_INCLUDED */
