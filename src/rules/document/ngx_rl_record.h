/*
 * A record: one version of a zone's document with what is known of it. It is
 * one text, the same in shared memory, in Redis and in the state file. Its
 * first line is the head, JSON. Its second line is the document.
 *
 *     {"format":"1.1","version":42,"id":"9f0c...","lineage":"77ab...",
 *      "time":"2026-...","author":"ann","address":"192.0.2.1",
 *      "method":"PUT","path":"/rules","reason":"...","bytes":1234,
 *      "sha256":"..."}\n
 *     {"rules":[...],...}\n
 *
 * "lineage" is made with version 1, and all later versions have it. It tells a
 * gateway whether a record is of its own fleet. Format 1.0 has no lineage,
 * address, method and path.
 *
 * "bytes" is the length of the document. "sha256" is the last field of a head.
 * It is the digest of all bytes before its comma, and of the document. A newer
 * minor format may have more fields before it.
 */

#ifndef NGX_RL_RECORD_H_INCLUDED
#define NGX_RL_RECORD_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#define NGX_RL_DOCUMENT_MAX    (1024 * 1024)  /* bytes of a document */
#define NGX_RL_RECORD_HEAD     (16 * 1024)    /* of a head */
#define NGX_RL_RECORD_MAX                                                     \
    (NGX_RL_RECORD_HEAD + NGX_RL_DOCUMENT_MAX)  /* of both */
#define NGX_RL_RECORD_HISTORY  50             /* versions kept, */
#define NGX_RL_RECORD_RING     (32 * 1024 * 1024)  /* of so many bytes */
#define NGX_RL_RECORD_AUTHOR   256   /* bytes kept of a name */
#define NGX_RL_RECORD_ADDRESS  64
#define NGX_RL_RECORD_METHOD   32
#define NGX_RL_RECORD_PATH     512
#define NGX_RL_RECORD_REASON   1024

typedef struct {
    uint64_t    version;    /* 1 and more, at most 2^53 */
    uint64_t    id;         /* random: two writes of one number differ */
    uint64_t    lineage;    /* random, of all versions of a fleet; 0: none */
    uint64_t    time_ms;    /* since the epoch */
    ngx_str_t   author;     /* each of these may be empty */
    ngx_str_t   address;    /* the client's */
    ngx_str_t   method;     /* "PUT", */
    ngx_str_t   path;       /* "/rules/orders": what was changed */
    ngx_str_t   reason;
    ngx_str_t   document;   /* JSON without line ends, but for the last byte */
    ngx_str_t   text;       /* the whole record */
} ngx_rl_record_t;

/*
 * Reads the record at the beginning of text. Its strings are copied to pool
 * but for document and text, which are parts of the given text. Returns NULL,
 * or what is wrong, as a constant string: ngx_rl_record_no_memory if
 * memory is out; ngx_rl_record_too_large if the document is larger than
 * NGX_RL_DOCUMENT_MAX, and the head alone is read.
 */
extern const char  ngx_rl_record_no_memory[];
extern const char  ngx_rl_record_too_large[];

const char *ngx_rl_record_read(const ngx_str_t *text, ngx_pool_t *pool,
    ngx_rl_record_t *record);

/*
 * Reads the head alone, and no digest: of a record that was read whole before,
 * or where there are no documents (a list of versions). document.len is what
 * the head says. Where less follows, document.data is NULL and text ends with
 * the head.
 */
const char *ngx_rl_record_head(const ngx_str_t *text, ngx_pool_t *pool,
    ngx_rl_record_t *record);

/* A copy in pool, but for text. Returns NGX_OK, or NGX_ERROR: memory is out. */
ngx_int_t ngx_rl_record_copy(ngx_rl_record_t *to, const ngx_rl_record_t *from,
    ngx_pool_t *pool);

/*
 * Writes record->text, in pool, out of the other members; document is part of
 * that then. Long texts are cut. "?" replaces zeros and, if a text is no UTF-8,
 * all that is not ASCII. Returns NGX_OK, NGX_DECLINED: it is larger than
 * NGX_RL_DOCUMENT_MAX, the document is not one line, or the version is
 * out of range; or NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_record_write(ngx_rl_record_t *record, ngx_pool_t *pool);

#endif /* NGX_RL_RECORD_H_INCLUDED */
