/*
 * Hashes: a universal hash names a counter on this gateway, SipHash with 128
 * bits out names it in Redis, CRC16 finds a Redis Cluster slot.
 */

#ifndef NGX_RL_HASH_H_INCLUDED
#define NGX_RL_HASH_H_INCLUDED

#include "ngx_rl_types.h"

#define NGX_RL_SIPHASH_KEY_BYTES  16
#define NGX_RL_CLUSTER_SLOTS      16384

/* longer keys are hashed by SipHash */
#define NGX_RL_HASH_BYTES         256

/* The secret of ngx_rl_hash(): random bytes, all of them. */
typedef struct {
    uint64_t  start[2];
    uint64_t  mix[3];
    uint64_t  words[NGX_RL_HASH_BYTES / 8];
    u_char    sip[NGX_RL_SIPHASH_KEY_BYTES];
} ngx_rl_hash_key_t;

/*
 * Keyed hash of len bytes, for names that nobody sees: NH, then three Feistel
 * rounds.
 *
 * Proven: two different inputs of at most 256 bytes, chosen without knowledge
 * of the secret, get one id with a probability of at most 2^-63. Source: Black,
 * Halevi, Krawczyk, Krovetz, Rogaway, "UMAC: fast and secure message
 * authentication", theorem 1: 2^-64 for words of 64 bits. Its proof holds for
 * any difference of the sums, here that of the lengths. If one input has more
 * blocks, it has a product of two random words more: 0 with a probability of
 * 2^-63, any other number with a smaller one. The rounds are a permutation:
 * they merge no two sums.
 *
 * Assumed: nobody can tell bits of ids from bits of other ids. A client may
 * learn such bits from the time of its requests, and from counters that evict
 * each other. NH is linear in each word, so these bits would give it away; the
 * rounds hide its sum. The time depends on the length alone.
 */
ngx_rl_id_t ngx_rl_hash(const ngx_rl_hash_key_t *key, const u_char *data,
    size_t len);

/*
 * Keyed hash of len bytes, with c compression and d finalization rounds
 * (1 and 3 here; 2 and 4, as in the reference, for Redis). hi is
 * the first eight bytes of the output read as a little-endian word, lo the
 * last. Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF",
 * 128-bit variant.
 */
ngx_rl_id_t ngx_rl_siphash(const u_char *key, const u_char *data, size_t len,
    unsigned c, unsigned d);

/*
 * The Redis Cluster slot (0..16383) of a key: CRC16/XMODEM of the hash tag, or
 * of the whole key without one. Source: Redis Cluster specification.
 */
unsigned ngx_rl_cluster_slot(const u_char *key, size_t len);

#endif /* NGX_RL_HASH_H_INCLUDED */
