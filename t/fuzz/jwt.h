/*
 * Of nginx what tokens and keys need, and a writer of base64url. Included once,
 * behind nginx's headers.
 */

#ifndef JWT_H_INCLUDED
#define JWT_H_INCLUDED

static ngx_cycle_t    nginx_cycle;
volatile ngx_cycle_t  *ngx_cycle = &nginx_cycle;


ngx_int_t
ngx_decode_base64url(ngx_str_t *dst, ngx_str_t *src)
{
    size_t        i;
    uint32_t      bits;
    u_char       *p;
    const char   *at;
    static const char  digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789-_";

    p = dst->data;
    bits = 0;

    for (i = 0; i < src->len; i++) {
        at = memchr(digits, src->data[i], 64);

        if (at == NULL) {
            return NGX_ERROR;
        }

        bits = bits << 6 | (uint32_t) (at - digits);

        if (i % 4) {
            *p++ = (u_char) (bits >> (6 - 2 * (i % 4)));
        }
    }

    dst->len = p - dst->data;

    return (i % 4 == 1) ? NGX_ERROR : NGX_OK;
}


static inline u_char *
fuzz_encode(u_char *p, const u_char *data, size_t len)
{
    size_t        i;
    uint32_t      bits;
    static const char  digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789-_";

    for (i = 0; i < len; i += 3) {
        bits = (uint32_t) data[i] << 16
               | (uint32_t) (i + 1 < len ? data[i + 1] : 0) << 8
               | (uint32_t) (i + 2 < len ? data[i + 2] : 0);

        *p++ = digits[bits >> 18];
        *p++ = digits[bits >> 12 & 63];

        if (i + 1 < len) {
            *p++ = digits[bits >> 6 & 63];
        }

        if (i + 2 < len) {
            *p++ = digits[bits & 63];
        }
    }

    return p;
}


void
ngx_explicit_memzero(void *buf, size_t n)
{
    memset(buf, 0, n);
}

#endif /* JWT_H_INCLUDED */
