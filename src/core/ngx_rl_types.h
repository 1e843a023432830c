/*
 * The base of every file of src/core: exact integers, u_char, and the numbers
 * that a counter is made of.
 *
 * src/core compiles without nginx's headers. It takes the time as an argument
 * and memory from its caller, and never logs.
 */

#ifndef NGX_RL_TYPES_H_INCLUDED
#define NGX_RL_TYPES_H_INCLUDED

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#define NGX_RL_LINE  64   /* bytes of a cache line */

#define ngx_rl_min(a, b)  ((a) < (b) ? (a) : (b))
#define ngx_rl_max(a, b)  ((a) > (b) ? (a) : (b))

/* Not inlined: a function that seldom calls it stays small. */
#define NGX_RL_APART  __attribute__((noinline))

/* Inlined, however large: of what every check does, once. */
#define ngx_rl_inline  inline __attribute__((always_inline))

/* A counter's name on this gateway: a hash of the rule and its keys. */
typedef struct {
    uint64_t  hi;
    uint64_t  lo;
} ngx_rl_id_t;


/* A counter's answer, from shared memory and from Redis alike. */
typedef struct {
    uint32_t  granted;    /* tokens taken: 0 when rejected */
    uint32_t  remaining;  /* tokens left after that; or LATER */
    uint64_t  reset_us;   /* until the counter equals a fresh one */
    uint64_t  retry_us;   /* until the cost can be paid; 0 when granted */
    uint32_t  frac;       /* LATER: of a microsecond of reset_us */
} ngx_rl_answer_t;

/* retry_us of a cost that exceeds the capacity: no retry heals it */
#define NGX_RL_NEVER  UINT64_MAX

/* remaining: by reset_us and frac, see ngx_rl_limit_left() */
#define NGX_RL_LATER  UINT32_MAX

/* want: whether the cost could be paid, without taking it */
#define NGX_RL_LOOK   UINT32_MAX

/* want: the cost was spent already; the counter owes what is not there */
#define NGX_RL_CHARGE  (UINT32_MAX - 1)

/*
 * taken_us of tokens that an operator gives, not a request: as many come back
 * as are used, those that would be used for longest first
 */
#define NGX_RL_WHENEVER  UINT64_MAX

#endif /* NGX_RL_TYPES_H_INCLUDED */
