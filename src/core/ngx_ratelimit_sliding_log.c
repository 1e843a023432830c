#include "ngx_ratelimit_sliding_log.h"
#include <stdlib.h>
void ngx_ratelimit_sliding_log_take(ngx_ratelimit_log_t *log, const ngx_ratelimit_log_places_t *places, const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t cost, uint32_t want, ngx_ratelimit_answer_t *answer) { (void) log; (void) places; (void) limit; (void) now_us; (void) cost; (void) want; (void) answer; abort(); }
void ngx_ratelimit_sliding_log_give(ngx_ratelimit_log_t *log, const ngx_ratelimit_log_places_t *places, const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint64_t taken_us, uint32_t tokens) { (void) log; (void) places; (void) limit; (void) now_us; (void) taken_us; (void) tokens; abort(); }
