/*
 * Hashes: SipHash with 128 bits out names a counter, on this gateway and in
 * Redis; CRC16 finds a Redis Cluster slot.
 */

#ifndef NGX_RATELIMIT_HASH_H_INCLUDED
#define NGX_RATELIMIT_HASH_H_INCLUDED

#include "ngx_ratelimit_types.h"

#define NGX_RATELIMIT_SIPHASH_KEY_BYTES  16
#define NGX_RATELIMIT_CLUSTER_SLOTS      16384

/*
 * Keyed hash of len bytes, with c compression and d finalization rounds
 * (1 and 3 here; 2 and 4, as in the reference, for Redis). hi is
 * the first eight bytes of the output read as a little-endian word, lo the
 * last. Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF",
 * 128-bit variant.
 */
ngx_ratelimit_id_t ngx_ratelimit_siphash(const u_char *key, const u_char *data,
    size_t len, unsigned c, unsigned d);

/*
 * The Redis Cluster slot (0..16383) of a key: CRC16/XMODEM of the hash tag, or
 * of the whole key without one. Source: Redis Cluster specification.
 */
unsigned ngx_ratelimit_cluster_slot(const u_char *key, size_t len);

#endif /* NGX_RATELIMIT_HASH_H_INCLUDED */
