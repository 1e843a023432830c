/*
 * A record: one version of a zone's document with what is known of it. It is
 * one text, the same in shared memory, in Redis and in the state file: a line of
 * JSON, the head, and the document, which ends with a line end, too.
 *
 *     {"format":"1.0","version":42,"id":"9f0c...","time":"2026-...",
 *      "author":"ann","reason":"...","bytes":1234,"sha256":"..."}\n
 *     {"rules":[...],...}\n
 */

#ifndef NGX_RATELIMIT_RECORD_H_INCLUDED
#define NGX_RATELIMIT_RECORD_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>

#define NGX_RATELIMIT_RECORD_MAX      (32 * 1024 * 1024)  /* bytes of a whole */
#define NGX_RATELIMIT_RECORD_HISTORY  50                  /* versions kept */

typedef struct {
    uint64_t    version;    /* 1 and more, at most 2^53 */
    uint64_t    id;         /* random: two writes of one number differ */
    uint64_t    time_ms;    /* since the epoch */
    ngx_str_t   author;     /* $remote_user; may be empty */
    ngx_str_t   reason;     /* may be empty */
    ngx_str_t   document;   /* JSON without line ends, but for the last byte */
    ngx_str_t   text;       /* the whole record */
} ngx_ratelimit_record_t;

/*
 * Reads the record at the beginning of text. Its strings are copied to pool but
 * for document and text, which are parts of the given text. Returns NULL and
 * the record, or what is wrong, as a constant string: it is cut, its digest
 * does not fit, its format's major number is another one.
 */
const char *ngx_ratelimit_record_read(const ngx_str_t *text,
    ngx_pool_t *pool, ngx_ratelimit_record_t *record);

/*
 * Writes record->text, in pool, out of the other members. Returns NGX_OK,
 * NGX_DECLINED: it is larger than NGX_RATELIMIT_RECORD_MAX, or NGX_ERROR: memory
 * is out.
 */
ngx_int_t ngx_ratelimit_record_write(ngx_ratelimit_record_t *record,
    ngx_pool_t *pool);

#endif /* NGX_RATELIMIT_RECORD_H_INCLUDED */
