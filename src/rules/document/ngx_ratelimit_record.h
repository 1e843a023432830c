/*
 * A record: one version of a zone's document with what is known of it. It is
 * one text, the same in shared memory, in Redis and in the state file: a line
 * of JSON, the head, and the document, which ends with a line end, too.
 *
 *     {"format":"1.1","version":42,"id":"9f0c...","lineage":"77ab...",
 *      "time":"2026-...","author":"ann","address":"192.0.2.1",
 *      "method":"PUT","path":"/rules","reason":"...","bytes":1234,
 *      "sha256":"..."}\n
 *     {"rules":[...],...}\n
 *
 * "lineage" is made with the first version and goes on with each that is made
 * of it: so a gateway knows whether a record is of its own fleet. Format 1.0
 * has none, nor an address, a method and a path.
 *
 * "bytes" is the length of the document. "sha256" is the last field of a head,
 * and the digest of all bytes before it, from the record's first up to and
 * without the comma, and of the document. A newer minor format may have more
 * fields before it.
 */

#ifndef NGX_RATELIMIT_RECORD_H_INCLUDED
#define NGX_RATELIMIT_RECORD_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#define NGX_RATELIMIT_DOCUMENT_MAX    (1024 * 1024)  /* bytes of a document */
#define NGX_RATELIMIT_RECORD_HEAD     (16 * 1024)    /* of a head */
#define NGX_RATELIMIT_RECORD_MAX                                              \
    (NGX_RATELIMIT_RECORD_HEAD + NGX_RATELIMIT_DOCUMENT_MAX)  /* of both */
#define NGX_RATELIMIT_RECORD_HISTORY  50             /* versions kept, */
#define NGX_RATELIMIT_RECORD_RING     (32 * 1024 * 1024)  /* of so many bytes */
#define NGX_RATELIMIT_RECORD_AUTHOR   256   /* bytes kept of a name */
#define NGX_RATELIMIT_RECORD_ADDRESS  64
#define NGX_RATELIMIT_RECORD_METHOD   32
#define NGX_RATELIMIT_RECORD_PATH     512
#define NGX_RATELIMIT_RECORD_REASON   1024

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
} ngx_ratelimit_record_t;

/*
 * Reads the record at the beginning of text. Its strings are copied to pool
 * but for document and text, which are parts of the given text. Returns NULL
 * and the record, or what is wrong, as a constant string: it is cut, its
 * digest does not fit, its format's major number is another one. Where memory
 * is out, that is ngx_ratelimit_record_no_memory. Of a document larger than
 * NGX_RATELIMIT_DOCUMENT_MAX it is ngx_ratelimit_record_too_large: then the
 * head is read, and there may be no more of it.
 */
extern const char  ngx_ratelimit_record_no_memory[];
extern const char  ngx_ratelimit_record_too_large[];

const char *ngx_ratelimit_record_read(const ngx_str_t *text,
    ngx_pool_t *pool, ngx_ratelimit_record_t *record);

/*
 * Reads the head alone, and no digest: of a record that was read whole before,
 * or where there are no documents (a list of versions). document.len is what
 * the head says. Where less follows, document.data is NULL and text ends with
 * the head.
 */
const char *ngx_ratelimit_record_head(const ngx_str_t *text,
    ngx_pool_t *pool, ngx_ratelimit_record_t *record);

/*
 * Writes record->text, in pool, out of the other members; document is part of
 * that then. Of its texts it says what is kept, as UTF-8: "?" stands
 * for bytes that are none, and for zeros. Returns NGX_OK, NGX_DECLINED: it is
 * larger than NGX_RATELIMIT_DOCUMENT_MAX, the document is not one line, or the
 * version is out of range; or NGX_ERROR: memory is out.
 */
ngx_int_t ngx_ratelimit_record_write(ngx_ratelimit_record_t *record,
    ngx_pool_t *pool);

#endif /* NGX_RATELIMIT_RECORD_H_INCLUDED */
