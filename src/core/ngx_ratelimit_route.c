/*
 * Path templates and folding. Templates and paths are walked segment by
 * segment, in place: nothing is copied or allocated, and a match takes time
 * linear in the shorter of the two.
 */

#include "ngx_ratelimit_route.h"


typedef struct {
    const u_char  *data;
    size_t         len;
} ngx_ratelimit_segment_t;


static int ngx_ratelimit_segment_next(const u_char **pos, const u_char *last,
    ngx_ratelimit_segment_t *seg);
static const char *ngx_ratelimit_segment_check(
    const ngx_ratelimit_segment_t *seg);
static int ngx_ratelimit_segment_match(const ngx_ratelimit_segment_t *tmpl,
    const ngx_ratelimit_segment_t *seg);
static int ngx_ratelimit_segment_is_rest(const ngx_ratelimit_segment_t *seg);
static int ngx_ratelimit_segment_is_id(const ngx_ratelimit_segment_t *seg);
static int ngx_ratelimit_is_hex(u_char c);
static int ngx_ratelimit_is_digit(u_char c);


const char *
ngx_ratelimit_route_check(const u_char *text, size_t len)
{
    const char               *err;
    const u_char             *pos, *last;
    ngx_ratelimit_segment_t   seg;

    if (len == 0 || text[0] != '/') {
        return "must start with \"/\"";
    }

    if (memchr(text, ';', len) != NULL) {
        return "must not contain \";\": parameters of a path are ignored";
    }

    pos = text;
    last = text + len;

    while (ngx_ratelimit_segment_next(&pos, last, &seg)) {

        err = ngx_ratelimit_segment_check(&seg);
        if (err != NULL) {
            return err;
        }

        if (ngx_ratelimit_segment_is_rest(&seg) && pos != last) {
            return "\"**\" must be the last segment";
        }
    }

    return NULL;
}


int
ngx_ratelimit_route_match(const u_char *tmpl, size_t tmpl_len,
    const u_char *path, size_t path_len)
{
    int                       more;
    const u_char             *tmpl_last, *path_last;
    ngx_ratelimit_segment_t   want, seg;

    if (path_len == 0 || path[0] != '/') {
        return 0;
    }

    tmpl_last = tmpl + tmpl_len;
    path_last = path + path_len;

    while (ngx_ratelimit_segment_next(&tmpl, tmpl_last, &want)) {

        if (ngx_ratelimit_segment_is_rest(&want)) {
            return 1;
        }

        more = ngx_ratelimit_segment_next(&path, path_last, &seg);

        if (!more || !ngx_ratelimit_segment_match(&want, &seg)) {
            return 0;
        }
    }

    return !ngx_ratelimit_segment_next(&path, path_last, &seg);
}


size_t
ngx_ratelimit_route_fold(const u_char *path, size_t path_len, u_char *out)
{
    u_char                   *p;
    const u_char             *last;
    ngx_ratelimit_segment_t   seg;

    p = out;
    last = path + path_len;

    while (ngx_ratelimit_segment_next(&path, last, &seg)) {
        *p++ = '/';

        if (ngx_ratelimit_segment_is_id(&seg)) {
            memcpy(p, "{id}", 4);
            p += 4;

        } else if (seg.len) {
            memcpy(p, seg.data, seg.len);
            p += seg.len;
        }
    }

    /* slashes that were doubled at the end name no other route */

    while (p > out && p[-1] == '/') {
        p--;
    }

    if (p == out) {
        *p++ = '/';
    }

    return p - out;
}


/*
 * Takes the segment at *pos, without the "/" before it and without
 * ";parameters". Returns 0 at the end. An empty last segment is the end too,
 * which is what makes one trailing "/" insignificant.
 */
static int
ngx_ratelimit_segment_next(const u_char **pos, const u_char *last,
    ngx_ratelimit_segment_t *seg)
{
    const u_char  *p, *end, *params;

    p = *pos;

    if (p == last) {
        return 0;
    }

    if (*p == '/') {
        p++;
    }

    end = (p < last) ? memchr(p, '/', last - p) : NULL;
    if (end == NULL) {
        end = last;
    }

    params = (p < end) ? memchr(p, ';', end - p) : NULL;

    *pos = end;
    seg->data = p;
    seg->len = (params ? params : end) - p;

    return seg->len || end != last;
}


static const char *
ngx_ratelimit_segment_check(const ngx_ratelimit_segment_t *seg)
{
    size_t  i, last;
    u_char  c;

    if (seg->len == 0) {
        return "must not contain \"//\"";
    }

    if (seg->data[0] == '*' && (seg->len == 1
                                || ngx_ratelimit_segment_is_rest(seg)))
    {
        return NULL;
    }

    i = 0;
    last = seg->len;

    if (seg->data[0] == '{' && seg->data[last - 1] == '}') {
        i = 1;
        last--;

        if (i == last) {
            return "\"{}\" must have a name inside";
        }
    }

    for ( /* void */ ; i < last; i++) {
        c = seg->data[i];

        if (c == '*' || c == '{' || c == '}') {
            return "\"{name}\", \"*\" and \"**\" must be whole segments";
        }
    }

    return NULL;
}


static int
ngx_ratelimit_segment_match(const ngx_ratelimit_segment_t *tmpl,
    const ngx_ratelimit_segment_t *seg)
{
    if (tmpl->data[0] == '{' || tmpl->data[0] == '*') {
        return seg->len != 0;
    }

    return tmpl->len == seg->len
           && memcmp(tmpl->data, seg->data, seg->len) == 0;
}


static int
ngx_ratelimit_segment_is_rest(const ngx_ratelimit_segment_t *seg)
{
    return seg->len == 2 && seg->data[0] == '*' && seg->data[1] == '*';
}


/* A decimal number, a UUID (RFC 9562), or 16 and more hexadecimal digits. */

static int
ngx_ratelimit_segment_is_id(const ngx_ratelimit_segment_t *seg)
{
    u_char  c;
    size_t  i, digits, hex, dashes;

    digits = 0;
    hex = 0;
    dashes = 0;

    for (i = 0; i < seg->len; i++) {
        c = seg->data[i];

        if (ngx_ratelimit_is_hex(c)) {
            hex++;
            digits += ngx_ratelimit_is_digit(c);

        } else if (c == '-' && (i == 8 || i == 13 || i == 18 || i == 23)) {
            dashes++;

        } else {
            return 0;
        }
    }

    if (dashes) {
        return dashes == 4 && hex == 32;
    }

    return hex >= 16 || (hex && digits == hex);
}


static int
ngx_ratelimit_is_hex(u_char c)
{
    return ngx_ratelimit_is_digit(c) || (c >= 'a' && c <= 'f')
           || (c >= 'A' && c <= 'F');
}


static int
ngx_ratelimit_is_digit(u_char c)
{
    return c >= '0' && c <= '9';
}
