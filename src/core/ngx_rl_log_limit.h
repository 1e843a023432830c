/*
 * Limits log lines: of one kind, one line in an interval. The next line says
 * how many were suppressed. A kind lives in the memory of a worker or in
 * memory that workers share: no lock is held, so a process may die anywhere.
 *
 *     char  note[NGX_RL_LOG_NOTE];
 *
 *     if (ngx_rl_log_due(&limit, ngx_current_msec,
 *                               NGX_RL_LOG_MS, note))
 *     {
 *         ngx_log_error(level, log, 0, "... \"%V\"%s", &value, note);
 *     }
 */

#ifndef NGX_RL_LOG_LIMIT_H_INCLUDED
#define NGX_RL_LOG_LIMIT_H_INCLUDED

#include <stdatomic.h>

#include "ngx_rl_types.h"

#define NGX_RL_LOG_MS    1000   /* the interval of most kinds */

/* bytes of the longest note, with its NUL */
#define NGX_RL_LOG_NOTE                                                       \
    sizeof(" (18446744073709551615 similar lines suppressed)")

/* zeroed: no line so far */
typedef struct {
    _Atomic uint64_t  written_ms;   /* the last line; 0: none */
    _Atomic uint64_t  suppressed;   /* since then */
} ngx_rl_log_limit_t;


/*
 * Whether a line of this kind may be written at now_ms, of a clock that all
 * who share it read. Returns 1, and the text to end the line with: empty, or
 * how many lines were suppressed. Returns 0 and counts the line otherwise.
 */
int ngx_rl_log_due(ngx_rl_log_limit_t *limit, uint64_t now_ms,
    uint64_t interval_ms, char note[NGX_RL_LOG_NOTE]);

#endif /* NGX_RL_LOG_LIMIT_H_INCLUDED */
