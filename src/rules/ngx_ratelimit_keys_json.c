/*
 * API keys of a document, and globs of them: what they are found by, and what
 * is stored of them.
 */

#include "ngx_ratelimit_read_json.h"

#include "ngx_ratelimit_text.h"

#include <arpa/inet.h>
#include <openssl/sha.h>

static void ngx_ratelimit_read_hex(u_char *out,
    const u_char sha256[NGX_RATELIMIT_SHA256]);
static ngx_int_t ngx_ratelimit_read_digest(const ngx_str_t *text,
    u_char sha256[NGX_RATELIMIT_SHA256]);
static ngx_uint_t ngx_ratelimit_read_address(const ngx_str_t *text);
static void ngx_ratelimit_read_one_key(const ngx_str_t *text,
    ngx_uint_t globs, ngx_ratelimit_api_key_t *key);

static ngx_int_t ngx_ratelimit_read_listed(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const json_t *value,
    ngx_ratelimit_api_key_t *key);

static const ngx_str_t  ngx_ratelimit_sha256_prefix = ngx_string("sha256:");


void
ngx_ratelimit_read_sha256(const ngx_str_t *text,
    u_char sha256[NGX_RATELIMIT_SHA256])
{
    (void) SHA256(text->data, text->len, sha256);
}


/* Behind "sha256:", NGX_RATELIMIT_DOCUMENT_KEY bytes together. */
static void
ngx_ratelimit_read_hex(u_char *out, const u_char sha256[NGX_RATELIMIT_SHA256])
{
    size_t  i;

    static const char  digits[] = "0123456789abcdef";

    ngx_memcpy(out, ngx_ratelimit_sha256_prefix.data,
               ngx_ratelimit_sha256_prefix.len);
    out += ngx_ratelimit_sha256_prefix.len;

    for (i = 0; i < NGX_RATELIMIT_SHA256; i++) {
        *out++ = (u_char) digits[sha256[i] >> 4];
        *out++ = (u_char) digits[sha256[i] & 15];
    }
}


/*
 * NGX_OK: it is "sha256:" with a digest behind; NGX_DECLINED: with something
 * else behind; NGX_DONE: it is another text.
 */
static ngx_int_t
ngx_ratelimit_read_digest(const ngx_str_t *text,
    u_char sha256[NGX_RATELIMIT_SHA256])
{
    u_char  ch;
    size_t  i, prefix;

    prefix = ngx_ratelimit_sha256_prefix.len;

    if (text->len < prefix
        || ngx_memcmp(text->data, ngx_ratelimit_sha256_prefix.data, prefix)
           != 0)
    {
        return NGX_DONE;
    }

    if (text->len != NGX_RATELIMIT_DOCUMENT_KEY) {
        return NGX_DECLINED;
    }

    for (i = 0; i < 2 * NGX_RATELIMIT_SHA256; i++) {
        ch = text->data[prefix + i] | 0x20;

        if (ch >= '0' && ch <= '9') {
            ch -= '0';

        } else if (ch >= 'a' && ch <= 'f') {
            ch -= 'a' - 10;

        } else {
            return NGX_DECLINED;
        }

        /* 0x10 to 0x19, which "|" made digits of, are below ' ' */

        if (text->data[prefix + i] < ' ') {
            return NGX_DECLINED;
        }

        sha256[i / 2] = (i % 2) ? (u_char) (sha256[i / 2] | ch)
                                : (u_char) (ch << 4);
    }

    return NGX_OK;
}


ngx_str_t
ngx_ratelimit_document_key(const ngx_str_t *key,
    u_char buf[NGX_RATELIMIT_DOCUMENT_KEY])
{
    u_char     sha256[NGX_RATELIMIT_SHA256];
    ngx_int_t  rc;
    ngx_str_t  stored;

    rc = ngx_ratelimit_read_digest(key, sha256);

    if (rc == NGX_DECLINED) {
        return *key;
    }

    if (rc == NGX_DONE) {
        ngx_ratelimit_read_sha256(key, sha256);
    }

    ngx_ratelimit_read_hex(buf, sha256);

    stored.data = buf;
    stored.len = NGX_RATELIMIT_DOCUMENT_KEY;

    return stored;
}


ngx_int_t
ngx_ratelimit_read_api_key(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_str_t *text, ngx_uint_t globs,
    ngx_ratelimit_api_key_t *key)
{
    const char  *expected;

    ngx_str_null(&key->glob);

    if (text->len == 0) {
        ngx_ratelimit_read_problem(reader, at, "expected an API key");
        return NGX_DECLINED;
    }

    switch (ngx_ratelimit_read_digest(text, key->sha256)) {

    case NGX_OK:
        return NGX_OK;

    case NGX_DECLINED:
        ngx_ratelimit_read_problem(reader, at, "expected 64 hexadecimal digits "
                                   "behind \"sha256:\"");
        return NGX_DECLINED;
    }

    /* one that is stored already does no harm, and is in no change's way */

    if (reader->written && reader->known == NULL
        && ngx_ratelimit_read_address(text))
    {
        ngx_ratelimit_read_problem(reader, at, "is an address or a network, "
                                   "expected an API key; addresses are for "
                                   "\"allow\" and \"deny\" of nginx.conf");
        return NGX_DECLINED;
    }

    if (globs) {
        expected = ngx_ratelimit_glob_check(text->data, text->len);

        if (expected) {
            ngx_ratelimit_read_problem(reader, at, "expected %s", expected);
            return NGX_DECLINED;
        }

    } else if (ngx_strlchr(text->data, text->data + text->len, '*')
               || ngx_strlchr(text->data, text->data + text->len, '?'))
    {
        ngx_ratelimit_read_problem(reader, at, "expected one API key: one with "
                                   "\"*\" or \"?\" in it as \"sha256:...\"");
        return NGX_DECLINED;
    }

    ngx_ratelimit_read_one_key(text, globs, key);

    return NGX_OK;
}


/* "127.0.0.1", "10.0.0.0/8", "::1", "2001:db8::/32" */
static ngx_uint_t
ngx_ratelimit_read_address(const ngx_str_t *text)
{
    char             buf[INET6_ADDRSTRLEN];
    u_char          *slash, *last;
    size_t           len;
    uint64_t         bits;
    struct in6_addr  addr;

    last = text->data + text->len;
    slash = ngx_strlchr(text->data, last, '/');
    len = text->len;

    if (slash) {
        len = slash - text->data;

        if (ngx_ratelimit_number_parse(slash + 1, last - slash - 1, 0, 128,
                                       &bits)
            != 0)
        {
            return 0;
        }
    }

    if (len >= sizeof(buf)) {
        return 0;
    }

    ngx_memcpy(buf, text->data, len);
    buf[len] = '\0';

    return inet_pton(AF_INET, buf, &addr) == 1
           || inet_pton(AF_INET6, buf, &addr) == 1;
}


/* A checked text: a glob that stands for one key is that key. */
static void
ngx_ratelimit_read_one_key(const ngx_str_t *text, ngx_uint_t globs,
    ngx_ratelimit_api_key_t *key)
{
    u_char     *p, plain[NGX_RATELIMIT_GLOB_MAX];
    size_t      i;
    ngx_str_t   one;

    if (!globs) {
        ngx_ratelimit_read_sha256(text, key->sha256);
        return;
    }

    if (ngx_ratelimit_glob_wild(text->data, text->len)) {
        key->glob = *text;
        return;
    }

    p = plain;

    for (i = 0; i < text->len && p < plain + sizeof(plain); i++) {
        if (text->data[i] == '\\' && i + 1 < text->len) {
            i++;
        }

        *p++ = text->data[i];
    }

    one.data = plain;
    one.len = p - plain;

    ngx_ratelimit_read_sha256(&one, key->sha256);
}


void
ngx_ratelimit_read_store(ngx_ratelimit_reader_t *reader, json_t *value,
    const ngx_ratelimit_api_key_t *key)
{
    u_char  text[NGX_RATELIMIT_DOCUMENT_KEY];

    if (!reader->hashed || key->glob.len) {
        return;
    }

    ngx_ratelimit_read_hex(text, key->sha256);

    if (json_string_setn(value, (char *) text, sizeof(text)) != 0) {
        reader->failed = 1;
    }
}


void
ngx_ratelimit_read_rename(ngx_ratelimit_reader_t *reader, json_t *object,
    u_char (*names)[NGX_RATELIMIT_SHA256])
{
    void    *iter;
    u_char   text[NGX_RATELIMIT_DOCUMENT_KEY];
    json_t  *renamed;

    if (!reader->hashed || reader->failed) {
        return;
    }

    renamed = json_object();
    if (renamed == NULL) {
        reader->failed = 1;
        return;
    }

    for (iter = json_object_iter(object);
         iter;
         iter = json_object_iter_next(object, iter))
    {
        ngx_ratelimit_read_hex(text, *names++);

        if (json_object_setn(renamed, (char *) text, sizeof(text),
                             json_object_iter_value(iter))
            != 0)
        {
            reader->failed = 1;
            break;
        }
    }

    if (!reader->failed
        && (json_object_clear(object) != 0
            || json_object_update(object, renamed) != 0))
    {
        reader->failed = 1;
    }

    json_decref(renamed);
}


/* NGX_OK, or NGX_DECLINED with the problem added. */
static ngx_int_t
ngx_ratelimit_read_listed(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const json_t *value,
    ngx_ratelimit_api_key_t *key)
{
    ngx_str_t  text;

    if (!ngx_ratelimit_read_is(reader, at, value, NGX_RATELIMIT_IS_TEXT)) {
        return NGX_DECLINED;
    }

    text = ngx_ratelimit_read_text(value);

    return ngx_ratelimit_read_api_key(reader, at, &text, 1, key);
}


void
ngx_ratelimit_read_keys(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *list, ngx_ratelimit_keys_t *keys)
{
    size_t                      i, n, nglobs;
    json_t                     *value;
    ngx_uint_t                  problems;
    ngx_str_t                   copy;
    ngx_ratelimit_place_t       item;
    ngx_ratelimit_api_key_t     key;
    ngx_ratelimit_glob_text_t  *globs;

    if (!ngx_ratelimit_read_few(reader, at, NULL, list,
                                NGX_RATELIMIT_DOCUMENT_ENTRIES))
    {
        return;
    }

    n = ngx_ratelimit_read_count(list);
    nglobs = 0;

    globs = ngx_alloc((n + 1) * sizeof(ngx_ratelimit_glob_text_t),
                      reader->pool->log);
    if (globs == NULL) {
        reader->failed = 1;
        return;
    }

    for (i = 0; i < n; i++) {
        value = ngx_ratelimit_read_item(list, i, at, &item);
        problems = reader->problems->n;

        if (ngx_ratelimit_read_listed(reader, &item, value, &key) != NGX_OK) {
            (void) ngx_ratelimit_read_skip(reader, problems, NULL);
            continue;
        }

        ngx_ratelimit_read_store(reader, value, &key);

        if (key.glob.len) {
            copy = ngx_ratelimit_read_copy(reader, value);
            globs[nglobs].data = copy.data;
            globs[nglobs++].len = copy.len;
            continue;
        }

        if (keys->digests.entries == NULL
            && ngx_ratelimit_read_map(reader, &keys->digests, n) != NGX_OK)
        {
            break;
        }

        (void) ngx_ratelimit_map_put(&keys->digests, key.sha256, 0);
    }

    if (!reader->failed) {
        keys->globs = ngx_ratelimit_read_globs(reader, globs, nglobs);
    }

    ngx_free(globs);
}


ngx_ratelimit_globs_t *
ngx_ratelimit_read_globs(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_glob_text_t *globs, size_t n)
{
    void  *memory;

    if (n == 0) {
        return NULL;
    }

    memory = ngx_ratelimit_read_alloc(reader, ngx_ratelimit_globs_bytes(n));

    return memory ? ngx_ratelimit_globs_init(memory, globs, n) : NULL;
}
