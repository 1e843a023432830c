/*
 * Which lines about a Redis node are due: equal lines of all workers are
 * limited together, in the memory that the workers share.
 */

#include "ngx_ratelimit_redis_int.h"

/* while a breaker is open the log repeats itself so often */
#define NGX_RATELIMIT_REDIS_REMIND_MS  60000


static ngx_ratelimit_redis_reason_t *ngx_ratelimit_redis_reason(
    ngx_ratelimit_redis_shard_t *shard, uint32_t why);


ngx_uint_t
ngx_ratelimit_redis_error_due(ngx_ratelimit_redis_conn_t *conn,
    const u_char *why, size_t len, char note[NGX_RATELIMIT_LOG_NOTE])
{
    uint64_t                       interval_ms;
    uint32_t                       hash, found;
    ngx_ratelimit_redis_shard_t   *shard;
    ngx_ratelimit_redis_reason_t  *reason;

    shard = conn->shard;

    if (shard == NULL) {
        return ngx_ratelimit_log_due(&conn->errors, ngx_current_msec,
                                     NGX_RATELIMIT_LOG_MS, note);
    }

    hash = ngx_crc32_short((u_char *) why, len);
    reason = ngx_ratelimit_redis_reason(shard, hash);
    found = atomic_load(&reason->why);
    interval_ms = NGX_RATELIMIT_LOG_MS;

    if (found != hash) {

        /*
         * The new reason would inherit the time of the last line, and an open
         * breaker makes the interval long: its first line must be due now.
         */

        if (ngx_ratelimit_log_recent(&reason->limit, ngx_current_msec,
                                     NGX_RATELIMIT_LOG_MS))
        {
            return 0;
        }

        /* another worker took the place: for this reason, or another one */

        if (!atomic_compare_exchange_strong(&reason->why, &found, hash)
            && found != hash)
        {
            return 0;
        }

        atomic_store(&reason->limit.suppressed, 0);

    } else if (ngx_ratelimit_breaker_state(&shard->breaker)
               == NGX_RATELIMIT_BREAKER_OPEN)
    {
        interval_ms = NGX_RATELIMIT_REDIS_REMIND_MS;
    }

    return ngx_ratelimit_log_due(&reason->limit, ngx_current_msec,
                                 interval_ms, note);
}


/* The reason's place, else the one that was not used for longest. */

static ngx_ratelimit_redis_reason_t *
ngx_ratelimit_redis_reason(ngx_ratelimit_redis_shard_t *shard, uint32_t why)
{
    ngx_uint_t                     i;
    ngx_ratelimit_redis_reason_t  *oldest, *reason;

    oldest = shard->reasons;

    for (i = 0; i < NGX_RATELIMIT_REDIS_REASONS; i++) {
        reason = &shard->reasons[i];

        if (atomic_load(&reason->why) == why) {
            return reason;
        }

        if (atomic_load(&reason->limit.written_ms)
            < atomic_load(&oldest->limit.written_ms))
        {
            oldest = reason;
        }
    }

    return oldest;
}


ngx_uint_t
ngx_ratelimit_redis_notice_due(ngx_ratelimit_redis_conn_t *conn,
    char note[NGX_RATELIMIT_LOG_NOTE])
{
    return ngx_ratelimit_log_due(conn->shard ? &conn->shard->notices
                                             : &conn->notices,
                                 ngx_current_msec, NGX_RATELIMIT_LOG_MS,
                                 note);
}
