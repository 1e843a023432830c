#include "ngx_ratelimit_window.h"
#include <stdlib.h>
uint64_t ngx_ratelimit_fixed_window_left(const ngx_ratelimit_limit_t *limit, uint64_t wall_us) { (void) limit; (void) wall_us; abort(); }
void ngx_ratelimit_fixed_window_take(ngx_ratelimit_window_t *w, const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint64_t left_us, uint32_t cost, uint32_t want, ngx_ratelimit_answer_t *answer) { (void) w; (void) limit; (void) now_us; (void) left_us; (void) cost; (void) want; (void) answer; abort(); }
void ngx_ratelimit_fixed_window_give(ngx_ratelimit_window_t *w, const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint64_t taken_us, uint32_t tokens) { (void) w; (void) limit; (void) now_us; (void) taken_us; (void) tokens; abort(); }
void ngx_ratelimit_sliding_window_take(ngx_ratelimit_window_t *w, const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint32_t cost, uint32_t want, ngx_ratelimit_answer_t *answer) { (void) w; (void) limit; (void) now_us; (void) cost; (void) want; (void) answer; abort(); }
void ngx_ratelimit_sliding_window_give(ngx_ratelimit_window_t *w, const ngx_ratelimit_limit_t *limit, uint64_t now_us, uint64_t taken_us, uint32_t tokens) { (void) w; (void) limit; (void) now_us; (void) taken_us; (void) tokens; abort(); }
