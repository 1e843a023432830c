/*
 * What Redis and the store answer: heads, numbers.
 */

#include "ngx_ratelimit_sync_call.h"


/* Of the script's list, heads without their line ends. */
ngx_int_t
ngx_ratelimit_sync_lines(ngx_ratelimit_sync_call_t *call,
    const ngx_str_t *texts, ngx_uint_t n)
{
    u_char      *p;
    size_t       len;
    ngx_str_t    text;
    ngx_uint_t   i;

    for (i = 0, len = 0; i < n; i++) {
        len += texts[i].len + 1;
    }

    text.len = len;
    text.data = ngx_pnalloc(call->pool, len + 1);

    if (text.data == NULL) {
        return NGX_ERROR;
    }

    for (i = 0, p = text.data; i < n; i++) {
        p = ngx_cpymem(p, texts[i].data, texts[i].len);
        *p++ = LF;
    }

    return ngx_ratelimit_sync_heads(call, &text, 0);
}


/*
 * Reads the heads of records that stand one behind the other; whole: each with
 * its document.
 */
ngx_int_t
ngx_ratelimit_sync_heads(ngx_ratelimit_sync_call_t *call,
    const ngx_str_t *records, ngx_uint_t whole)
{
    size_t                   len;
    ngx_str_t                text;
    ngx_array_t              heads;
    const char              *wrong;
    ngx_ratelimit_record_t  *record;

    if (ngx_array_init(&heads, call->pool, 16,
                       sizeof(ngx_ratelimit_record_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    text = *records;

    while (text.len) {
        record = ngx_array_push(&heads);
        if (record == NULL) {
            return NGX_ERROR;
        }

        wrong = ngx_ratelimit_record_head(&text, call->pool, record);

        if (wrong == ngx_ratelimit_record_no_memory) {
            return NGX_ERROR;
        }

        if (wrong && wrong != ngx_ratelimit_record_too_large) {
            heads.nelts--;
            break;
        }

        len = whole ? record->text.len
                    : (size_t) (ngx_strlchr(text.data, text.data + text.len,
                                            LF)
                                + 1 - text.data);
        text.data += len;
        text.len -= len;

        /* a document of this length, which is not here */

        record->document.data = NULL;
        ngx_str_null(&record->text);
    }

    call->result.n = heads.nelts;
    call->result.records = heads.elts;

    return NGX_OK;
}


ngx_int_t
ngx_ratelimit_sync_number(const ngx_str_t *text, uint64_t *number)
{
    size_t    i;
    uint64_t  n;

    if (text->len == 0 || text->len > 16) {
        return NGX_ERROR;
    }

    n = 0;

    for (i = 0; i < text->len; i++) {
        if (text->data[i] < '0' || text->data[i] > '9') {
            return NGX_ERROR;
        }

        n = n * 10 + (text->data[i] - '0');
    }

    *number = n;

    return (n <= NGX_RATELIMIT_SYNC_LATEST) ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_ratelimit_sync_id(const ngx_str_t *text, uint64_t *id)
{
    size_t     i;
    ngx_int_t  digit;

    if (text->len == 0 || text->len > 16) {
        return NGX_ERROR;
    }

    *id = 0;

    for (i = 0; i < text->len; i++) {
        digit = ngx_hextoi(text->data + i, 1);
        if (digit == NGX_ERROR) {
            return NGX_ERROR;
        }

        *id = *id << 4 | (uint64_t) digit;
    }

    return NGX_OK;
}
