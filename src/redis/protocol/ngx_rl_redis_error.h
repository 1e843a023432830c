/*
 * Error replies of Redis.
 */

#ifndef NGX_RL_REDIS_ERROR_H_INCLUDED
#define NGX_RL_REDIS_ERROR_H_INCLUDED

#include "ngx_rl_redis_codec.h"

#define NGX_RL_REDIS_MAX_WORD  32    /* bytes, in the log */

/* The first word of a reply that is an error, empty for any other reply. */
ngx_str_t ngx_rl_redis_error_word(const ngx_rl_redis_reply_t *reply);

/*
 * Returns the status of an error. ran: the command has run, or may have in
 * part.
 */
ngx_rl_redis_status_e ngx_rl_redis_error_status(
    const ngx_rl_redis_reply_t *reply, ngx_uint_t *ran);

/*
 * The error for the log: its first 80 bytes, without control characters, keys
 * and arguments, in buf; or its word, where that stands inside. Empty for a
 * reply that is no error.
 */
#define NGX_RL_REDIS_ERROR_TEXT  80

ngx_str_t ngx_rl_redis_error_text(
    const ngx_rl_redis_reply_t *reply,
    u_char buf[NGX_RL_REDIS_ERROR_TEXT]);

#endif /* NGX_RL_REDIS_ERROR_H_INCLUDED */
