/*
 * Of nginx what tests need that link none of its objects: texts, arrays,
 * sorting. Included once, behind nginx.h.
 */

#ifndef NGINX_TEXT_H_INCLUDED
#define NGINX_TEXT_H_INCLUDED

#include "nginx.h"

#include <stdio.h>

/* the epoch, until a test says another time */
static ngx_time_t       nginx_epoch;
volatile ngx_time_t    *ngx_cached_time = &nginx_epoch;


/* "%V", "%*s", "%s", "%d", "%ui", "%uD", "%uz", "%L", "%uL", "%Z", "%%" */
u_char *
ngx_vslprintf(u_char *buf, u_char *last, const char *fmt, va_list args)
{
    char         text[32];
    ngx_str_t   *v;

    for ( /* void */ ; *fmt && buf < last; fmt++) {

        if (*fmt != '%') {
            *buf++ = (u_char) *fmt;
            continue;
        }

        const char *from = text;
        int len = 0;

        switch (*++fmt) {

        case '%':
            text[len++] = '%';
            break;

        case 'Z':
            text[len++] = '\0';
            break;

        case 'V':
            v = va_arg(args, ngx_str_t *);
            from = (char *) v->data;
            len = (int) v->len;
            break;

        case '*':
            assert_int_equal(*++fmt, 's');
            len = (int) va_arg(args, size_t);
            from = va_arg(args, char *);
            break;

        case 's':
            from = va_arg(args, char *);
            len = (int) strlen(from);
            break;

        case 'd':
            len = sprintf(text, "%d", va_arg(args, int));
            break;

        case 'L':
            len = sprintf(text, "%lld", (long long) va_arg(args, int64_t));
            break;

        case 'u':
            switch (*++fmt) {

            case 'D':
                len = sprintf(text, "%u", va_arg(args, uint32_t));
                break;

            case 'i':
            case 'z':
            case 'L':
                len = sprintf(text, "%llu",
                              (unsigned long long) va_arg(args, uint64_t));
                break;

            default:
                fail_msg("format %%u%c", *fmt);
            }

            break;

        default:
            fail_msg("format %%%c", *fmt);
        }

        for (size_t n = (size_t) len; n && buf < last; n--) {
            *buf++ = (u_char) *from++;
        }
    }

    return buf;
}


u_char *
ngx_slprintf(u_char *buf, u_char *last, const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    buf = ngx_vslprintf(buf, last, fmt, args);
    va_end(args);

    return buf;
}


u_char *
ngx_snprintf(u_char *buf, size_t max, const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    buf = ngx_vslprintf(buf, buf + max, fmt, args);
    va_end(args);

    return buf;
}


u_char *
ngx_sprintf(u_char *buf, const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    buf = ngx_vslprintf(buf, (u_char *) -1, fmt, args);
    va_end(args);

    return buf;
}


void
ngx_strlow(u_char *dst, u_char *src, size_t n)
{
    while (n--) {
        *dst++ = ngx_tolower(*src);
        src++;
    }
}


ngx_int_t
ngx_strncasecmp(u_char *s1, u_char *s2, size_t n)
{
    for ( /* void */ ; n; n--, s1++, s2++) {
        if (ngx_tolower(*s1) != ngx_tolower(*s2)) {
            return ngx_tolower(*s1) - ngx_tolower(*s2);
        }
    }

    return 0;
}


u_char *
ngx_pstrdup(ngx_pool_t *pool, ngx_str_t *src)
{
    u_char *dst = ngx_pnalloc(pool, src->len);

    return dst ? memcpy(dst, src->data, src->len) : NULL;
}


u_char *
ngx_cpystrn(u_char *dst, u_char *src, size_t n)
{
    for ( /* void */ ; n > 1 && *src; n--) {
        *dst++ = *src++;
    }

    *dst = '\0';

    return dst;
}


u_char *
ngx_hex_dump(u_char *dst, u_char *src, size_t len)
{
    static const char  hex[] = "0123456789abcdef";

    while (len--) {
        *dst++ = (u_char) hex[*src >> 4];
        *dst++ = (u_char) hex[*src++ & 0xf];
    }

    return dst;
}


ngx_int_t
ngx_hextoi(u_char *line, size_t n)
{
    ngx_int_t  value;

    for (value = 0; n--; line++) {
        u_char c = (u_char) (*line | 0x20);

        if (*line >= '0' && *line <= '9') {
            value = value * 16 + (*line - '0');

        } else if (c >= 'a' && c <= 'f') {
            value = value * 16 + (c - 'a' + 10);

        } else {
            return NGX_ERROR;
        }
    }

    return value;
}


/* in seconds: "1h 30m", each unit once, the larger before the smaller */
ngx_int_t
ngx_parse_time(ngx_str_t *line, ngx_uint_t is_sec)
{
    ngx_int_t  value;

    static const struct {
        char       name;
        ngx_int_t  seconds;
    } units[] = {
        { 'y', 365 * 86400 }, { 'M', 30 * 86400 }, { 'w', 7 * 86400 }, { 'd',
            86400 }, { 'h', 3600 }, { 'm', 60 }, { 's', 1 }
    };

    assert_int_equal(is_sec, 1);

    size_t next = 0;
    ngx_int_t total = 0;

    for (size_t i = 0; i < line->len; /* void */ ) {

        if (line->data[i] < '0' || line->data[i] > '9') {
            return NGX_ERROR;
        }

        for (value = 0;
             i < line->len && line->data[i] >= '0' && line->data[i] <= '9';
             i++)
        {
            if (value > 1000000000) {
                return NGX_ERROR;
            }

            value = value * 10 + (line->data[i] - '0');
        }

        size_t unit = 6;

        if (i < line->len && line->data[i] != ' ') {

            for (unit = next; unit < 7; unit++) {
                if (units[unit].name == line->data[i]) {
                    break;
                }
            }

            if (unit == 7) {
                return NGX_ERROR;
            }

            i++;
        }

        if (unit < next || next == 7) {
            return NGX_ERROR;
        }

        next = unit + 1;
        total += value * units[unit].seconds;

        while (i < line->len && line->data[i] == ' ') {
            i++;
        }
    }

    return total;
}



ngx_array_t *
ngx_array_create(ngx_pool_t *pool, ngx_uint_t n, size_t size)
{
    ngx_array_t *array = ngx_palloc(pool, sizeof(ngx_array_t));

    return (array && ngx_array_init(array, pool, n, size) == NGX_OK)
           ? array : NULL;
}


void *
ngx_array_push_n(ngx_array_t *array, ngx_uint_t n)
{
    if (array->nelts + n > array->nalloc) {
        ngx_uint_t more = 2 * (n > array->nalloc ? n : array->nalloc);

        void *elts = ngx_palloc(array->pool, more * array->size);
        if (elts == NULL) {
            return NULL;
        }

        memcpy(elts, array->elts, array->nelts * array->size);
        array->elts = elts;
        array->nalloc = more;
    }

    array->nelts += n;

    return (u_char *) array->elts + (array->nelts - n) * array->size;
}


void *
ngx_array_push(ngx_array_t *array)
{
    return ngx_array_push_n(array, 1);
}

#endif /* NGINX_TEXT_H_INCLUDED */
