/*
 * Records: a head, which is JSON, and a document, which is any one line here.
 *
 * The digest stands at a fixed place, the end of the head, so that it covers
 * all other bytes and is found without reading JSON that may be damaged.
 */

/* EVP would allocate for each digest */
#ifndef OPENSSL_SUPPRESS_DEPRECATED
#define OPENSSL_SUPPRESS_DEPRECATED
#endif

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_rl_date.h"
#include "ngx_rl_record.h"

#include <jansson.h>
#include <openssl/sha.h>
#include <time.h>

#define NGX_RL_RECORD_FORMAT  "1.1"
#define NGX_RL_RECORD_MAJOR   "1."

#define NGX_RL_SHA256_FIELD   ",\"sha256\":\""
#define NGX_RL_SHA256_END     "\"}\n"

/* bytes of a head behind what its digest is of */
#define NGX_RL_RECORD_TAIL                                                    \
    (sizeof(NGX_RL_SHA256_FIELD) - 1 + 2 * SHA256_DIGEST_LENGTH               \
     + sizeof(NGX_RL_SHA256_END) - 1)

#define NGX_RL_RECORD_MAX_VERSION  ((uint64_t) 1 << 53)

/* the last ms of the year 9999 */
#define NGX_RL_RECORD_MAX_TIME     UINT64_C(253402300799999)

/* more than a document ever had: to say of a larger one that it is */
#define NGX_RL_RECORD_MAX_BYTES    (1024 * 1024 * 1024)

const char  ngx_rl_record_no_memory[] = "memory is out";
const char  ngx_rl_record_too_large[] = "its document is larger than 1 MiB";

/* each may be missing; max: bytes that are kept of one that is written */
static const struct {
    const char  *name;
    size_t       offset;
    size_t       max;
} ngx_rl_record_all_texts[] = {
    { "author", offsetof(ngx_rl_record_t, author), NGX_RL_RECORD_AUTHOR },
    { "address", offsetof(ngx_rl_record_t, address), NGX_RL_RECORD_ADDRESS },
    { "method", offsetof(ngx_rl_record_t, method), NGX_RL_RECORD_METHOD },
    { "path", offsetof(ngx_rl_record_t, path), NGX_RL_RECORD_PATH },
    { "reason", offsetof(ngx_rl_record_t, reason), NGX_RL_RECORD_REASON },
    { NULL, 0, 0 }
};


/* Writes 64 digits: of the head, and of the document. */
static void
ngx_rl_record_digest(const u_char *head, size_t len, const ngx_str_t *document,
    u_char *hex)
{
    u_char      digest[SHA256_DIGEST_LENGTH];
    SHA256_CTX  ctx;

    SHA256_Init(&ctx);
    SHA256_Update(&ctx, head, len);
    SHA256_Update(&ctx, document->data, document->len);
    SHA256_Final(digest, &ctx);

    (void) ngx_hex_dump(hex, digest, sizeof(digest));
}


static ngx_int_t
ngx_rl_record_number(json_t *json, const char *name, uint64_t max,
    uint64_t *value)
{
    json_t      *field;
    json_int_t   n;

    field = json_object_get(json, name);
    n = json_integer_value(field);      /* 0 of what is no number */

    if (n < 1 || (uint64_t) n > max) {
        return NGX_ERROR;
    }

    *value = n;

    return NGX_OK;
}


static ngx_int_t
ngx_rl_record_id(json_t *json, const char *name, uint64_t *id)
{
    const char  *text;

    text = json_string_value(json_object_get(json, name));

    if (text == NULL || strlen(text) != 16
        || strspn(text, "0123456789abcdef") != 16)
    {
        return NGX_ERROR;
    }

    *id = strtoull(text, NULL, 16);

    return NGX_OK;
}


/* Finds the document's length, and not the document. */
static const char *
ngx_rl_record_fields(json_t *json, ngx_pool_t *pool, ngx_rl_record_t *record)
{
    size_t       len;
    int64_t      sec;
    uint64_t     bytes;
    ngx_str_t   *out;
    ngx_uint_t   i;
    const char  *text;
    json_t      *field;

    static const char  form[] = "2026-01-31T23:59:59.000Z";

    if (ngx_rl_record_number(json, "version", NGX_RL_RECORD_MAX_VERSION,
                             &record->version)
        != NGX_OK)
    {
        return "its version is no number from 1 to 2^53";
    }

    if (ngx_rl_record_id(json, "id", &record->id) != NGX_OK) {
        return "its id is not 16 hexadecimal digits";
    }

    if (json_object_get(json, "lineage")
        && ngx_rl_record_id(json, "lineage", &record->lineage) != NGX_OK)
    {
        return "its lineage is not 16 hexadecimal digits";
    }

    /* the one form that is written here; a newer format has no other */

    text = json_string_value(json_object_get(json, "time"));
    len = sizeof(form) - 1;

    if (text == NULL || strlen(text) != len || text[len - 1] != 'Z'
        || text[len - 5] != '.'
        || ngx_rl_date_parse((const u_char *) text, len, &sec) != 0)
    {
        return "its time is not like \"2026-01-31T23:59:59.000Z\"";
    }

    record->time_ms = (uint64_t) sec * 1000 + strtoul(text + len - 4, NULL, 10);

    if (ngx_rl_record_number(json, "bytes", NGX_RL_RECORD_MAX_BYTES, &bytes)
        != NGX_OK)
    {
        return "its length is out of range";
    }

    record->document.len = bytes;

    for (i = 0; ngx_rl_record_all_texts[i].name; i++) {
        field = json_object_get(json, ngx_rl_record_all_texts[i].name);

        if (field == NULL) {
            continue;
        }

        if (!json_is_string(field)
            || json_string_length(field) > ngx_rl_record_all_texts[i].max)
        {
            return "a field of its head is no text, or too long";
        }

        out = (ngx_str_t *) ((u_char *) record
                             + ngx_rl_record_all_texts[i].offset);

        out->len = json_string_length(field);
        out->data = (u_char *) json_string_value(field);
        out->data = ngx_pstrdup(pool, out);

        if (out->data == NULL) {
            return ngx_rl_record_no_memory;
        }
    }

    return (bytes > NGX_RL_DOCUMENT_MAX) ? ngx_rl_record_too_large : NULL;
}


const char *
ngx_rl_record_head(const ngx_str_t *text, ngx_pool_t *pool,
    ngx_rl_record_t *record)
{
    u_char        *end;
    json_t        *json;
    ngx_str_t      head;
    const char    *format, *wrong;
    json_error_t   error;

    if (text->len == 0) {
        return "it is empty";
    }

    end = memchr(text->data, '\n', ngx_min(text->len, NGX_RL_RECORD_HEAD));

    if (end == NULL) {
        return "its head is cut, or too long";
    }

    head.data = text->data;
    head.len = end + 1 - text->data;

    ngx_memzero(record, sizeof(ngx_rl_record_t));

    json = json_loadb((char *) head.data, head.len, JSON_REJECT_DUPLICATES,
                      &error);
    if (json == NULL) {
        return json_error_code(&error) == json_error_out_of_memory
               ? ngx_rl_record_no_memory : "its head is no JSON";
    }

    format = json_string_value(json_object_get(json, "format"));

    if (format == NULL) {
        wrong = "it has no format";

    } else if (ngx_strncmp(format, NGX_RL_RECORD_MAJOR,
                           sizeof(NGX_RL_RECORD_MAJOR) - 1)
               != 0)
    {
        wrong = "its format is of another major version";

    } else if (head.len <= NGX_RL_RECORD_TAIL
               || ngx_memcmp(end + 1 - NGX_RL_RECORD_TAIL,
                             NGX_RL_SHA256_FIELD,
                             sizeof(NGX_RL_SHA256_FIELD) - 1)
                  != 0)
    {
        wrong = "its head does not end with a digest";

    } else {
        wrong = ngx_rl_record_fields(json, pool, record);
    }

    json_decref(json);

    if (wrong && wrong != ngx_rl_record_too_large) {
        return wrong;
    }

    record->text = head;

    if (wrong == NULL && text->len - head.len >= record->document.len) {
        record->document.data = end + 1;
        record->text.len += record->document.len;
    }

    return wrong;
}


const char *
ngx_rl_record_read(const ngx_str_t *text, ngx_pool_t *pool,
    ngx_rl_record_t *record)
{
    size_t       len;
    u_char       hex[2 * SHA256_DIGEST_LENGTH];
    const char  *wrong;

    wrong = ngx_rl_record_head(text, pool, record);

    if (wrong) {
        return wrong;
    }

    if (record->document.data == NULL) {
        return "it is cut";
    }

    if (memchr(record->document.data, '\n', record->document.len)
        != record->document.data + record->document.len - 1)
    {
        return "its document is not one line";
    }

    len = record->text.len - record->document.len - NGX_RL_RECORD_TAIL;

    ngx_rl_record_digest(text->data, len, &record->document, hex);

    if (ngx_memcmp(text->data + len + sizeof(NGX_RL_SHA256_FIELD) - 1,
                   hex, sizeof(hex))
        != 0)
    {
        return "its digest does not fit";
    }

    return NULL;
}


ngx_int_t
ngx_rl_record_copy(ngx_rl_record_t *to, const ngx_rl_record_t *from,
    ngx_pool_t *pool)
{
    ngx_str_t   *text;
    ngx_uint_t   i;

    *to = *from;

    for (i = 0; ngx_rl_record_all_texts[i].name; i++) {
        text = (ngx_str_t *) ((u_char *) to
                              + ngx_rl_record_all_texts[i].offset);

        text->data = text->len ? ngx_pstrdup(pool, text) : text->data;

        if (text->len && text->data == NULL) {
            return NGX_ERROR;
        }
    }

    to->document.data = ngx_pstrdup(pool, &to->document);

    return to->document.data ? NGX_OK : NGX_ERROR;
}


/*
 * A text as JSON, cut to max bytes between two characters. If it is no UTF-8,
 * "?" replaces all that is not ASCII. NULL: memory is out.
 */
static json_t *
ngx_rl_record_string(const ngx_str_t *text, size_t max)
{
    size_t   i, len;
    u_char   out[NGX_RL_RECORD_REASON];
    json_t  *json;

    len = ngx_min(text->len, ngx_min(max, sizeof(out)));

    while (len && len < text->len && (text->data[len] & 0xc0) == 0x80) {
        len--;
    }

    json = json_stringn((char *) text->data, len);

    if (json && memchr(text->data, '\0', len) == NULL) {
        return json;
    }

    for (i = 0; i < len; i++) {
        out[i] = (text->data[i] == '\0'
                  || (json == NULL && text->data[i] >= 0x80))
                 ? '?' : text->data[i];
    }

    json_decref(json);

    return json_stringn((char *) out, len);
}


/*
 * Writes the head without its digest, and returns its length; 0: memory is out.
 * json_dumps() would leave names out then.
 */
static size_t
ngx_rl_record_dump(const ngx_rl_record_t *record, char head[NGX_RL_RECORD_HEAD])
{
    int               rc;
    char              id[17];
    char              date[sizeof("2026-01-31T23:59:59.000Z") + 40];
    size_t            len;
    time_t            sec;
    uint64_t          ms;
    struct tm         tm;
    json_t           *json;
    ngx_uint_t        i;
    const ngx_str_t  *text;

    ms = ngx_min(record->time_ms, NGX_RL_RECORD_MAX_TIME);
    sec = ms / 1000;

    if (gmtime_r(&sec, &tm) == NULL) {
        return 0;
    }

    (void) snprintf(date, sizeof(date), "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ",
                    tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
                    tm.tm_min, tm.tm_sec, (int) (ms % 1000));

    (void) snprintf(id, sizeof(id), "%016" PRIx64, record->id);

    json = json_pack("{s:s, s:I, s:s}",
                     "format", NGX_RL_RECORD_FORMAT,
                     "version", (json_int_t) record->version,
                     "id", id);

    rc = 0;

    if (record->lineage) {
        (void) snprintf(id, sizeof(id), "%016" PRIx64, record->lineage);
        rc |= json_object_set_new(json, "lineage", json_string(id));
    }

    rc |= json_object_set_new(json, "time", json_string(date));

    for (i = 0; ngx_rl_record_all_texts[i].name; i++) {
        text = (const ngx_str_t *)
                   ((const u_char *) record
                    + ngx_rl_record_all_texts[i].offset);

        rc |= json_object_set_new(json, ngx_rl_record_all_texts[i].name,
            ngx_rl_record_string(text, ngx_rl_record_all_texts[i].max));
    }

    rc |= json_object_set_new(json, "bytes",
                              json_integer((json_int_t) record->document.len));
    if (rc != 0) {
        json_decref(json);
        return 0;
    }

    len = json_dumpb(json, head, NGX_RL_RECORD_HEAD, JSON_COMPACT);
    json_decref(json);

    return (len <= NGX_RL_RECORD_HEAD) ? len : 0;
}


ngx_int_t
ngx_rl_record_write(ngx_rl_record_t *record, ngx_pool_t *pool)
{
    char        head[NGX_RL_RECORD_HEAD];
    size_t      len, head_len;
    u_char     *p;
    ngx_str_t   document;

    document = record->document;

    if (record->version < 1
        || record->version > NGX_RL_RECORD_MAX_VERSION
        || document.len < 1
        || document.len > NGX_RL_DOCUMENT_MAX
        || memchr(document.data, '\n', document.len)
           != document.data + document.len - 1)
    {
        return NGX_DECLINED;
    }

    len = ngx_rl_record_dump(record, head);

    if (len == 0) {
        return NGX_ERROR;
    }

    /* the digest comes where the head's last brace is */

    len--;
    head_len = len + NGX_RL_RECORD_TAIL;

    p = ngx_pnalloc(pool, head_len + document.len);

    if (p == NULL) {
        return NGX_ERROR;
    }

    record->text.data = p;
    record->text.len = head_len + document.len;

    p = ngx_cpymem(p, head, len);
    p = ngx_cpymem(p, NGX_RL_SHA256_FIELD, sizeof(NGX_RL_SHA256_FIELD) - 1);

    ngx_rl_record_digest(record->text.data, len, &document, p);

    p = ngx_cpymem(p + 2 * SHA256_DIGEST_LENGTH, NGX_RL_SHA256_END,
                   sizeof(NGX_RL_SHA256_END) - 1);

    record->document.data = p;
    ngx_memcpy(p, document.data, document.len);

    return NGX_OK;
}
