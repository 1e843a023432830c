/*
 * Path templates and folding. Templates and paths are walked segment by
 * segment, in place: nothing is copied or allocated, and a match takes time
 * linear in the path.
 */

#include "ngx_rl_route.h"

#include "ngx_rl_text.h"


static int
ngx_rl_is_control(u_char c)
{
    return c < 0x20 || c == 0x7f;
}


static inline int
ngx_rl_segment_read(const u_char **pos, const u_char *last, unsigned reading,
    ngx_rl_segment_t *seg)
{
    u_char         other, parameter;
    const u_char  *p;

    other = (reading & NGX_RL_PATH_BACKSLASH) ? '\\' : '/';
    parameter = (reading & NGX_RL_PATH_TEXT) ? '/' : ';';

    p = *pos;

    while (p != last && (*p == '/' || *p == other)) {
        p++;
    }

    if (p == last) {
        *pos = p;
        return 0;
    }

    seg->data = p;

    while (p != last && *p != '/' && *p != other && *p != parameter) {
        p++;
    }

    seg->len = p - seg->data;

    while (p != last && *p != '/' && *p != other) {
        p++;
    }

    *pos = p;

    return 1;
}


static inline int
ngx_rl_segment_take(const u_char **pos, const u_char *last,
    ngx_rl_segment_t *seg)
{
    return ngx_rl_segment_read(pos, last, 0, seg);
}


static int
ngx_rl_segment_is_nothing(const ngx_rl_segment_t *seg)
{
    return seg->len == 0 || (seg->len == 1 && seg->data[0] == '.');
}


/*
 * nginx has resolved the ".." of a path; "..;" it takes for a name, and servers
 * that drop parameters first do not.
 */
static int
ngx_rl_segment_is_parent(const ngx_rl_segment_t *seg)
{
    return seg->len == 2 && seg->data[0] == '.' && seg->data[1] == '.';
}


int
ngx_rl_segment_is_rest(const ngx_rl_segment_t *seg)
{
    return seg->len == 2 && seg->data[0] == '*' && seg->data[1] == '*';
}


static const char *
ngx_rl_segment_check(const ngx_rl_segment_t *seg)
{
    size_t  i, last;
    u_char  c;

    if (ngx_rl_segment_is_nothing(seg) || ngx_rl_segment_is_parent(seg)) {
        return "must not contain \".\" or \"..\" as a segment";
    }

    if (seg->data[0] == '*' && (seg->len == 1 || ngx_rl_segment_is_rest(seg))) {
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


const char *
ngx_rl_route_check(const u_char *text, size_t len)
{
    size_t             i, depth;
    const char        *err;
    const u_char      *pos, *last;
    ngx_rl_segment_t   seg;

    if (len == 0 || text[0] != '/') {
        return "must start with \"/\"";
    }

    for (i = 0; i < len; i++) {

        if (text[i] == '/' && i + 1 < len && text[i + 1] == '/') {
            return "must not contain \"//\"";
        }

        if (text[i] == ';') {
            return "must not contain \";\": parameters of a path are ignored";
        }

        if (ngx_rl_is_control(text[i])) {
            return "must not contain control characters";
        }
    }

    pos = text;
    last = text + len;
    depth = 0;

    while (ngx_rl_segment_take(&pos, last, &seg)) {

        err = ngx_rl_segment_check(&seg);
        if (err != NULL) {
            return err;
        }

        if (ngx_rl_segment_is_rest(&seg) && pos != last) {
            return "\"**\" must be the last segment";
        }

        if (++depth > NGX_RL_ROUTE_DEPTH) {
            return "must have at most 32 segments";
        }
    }

    return NULL;
}


unsigned
ngx_rl_path_readings(const u_char *path, size_t len)
{
    return (memchr(path, ';', len) ? NGX_RL_PATH_TEXT : 0)
           | (memchr(path, '\\', len) ? NGX_RL_PATH_BACKSLASH : 0);
}


int
ngx_rl_path_split(const u_char *path, size_t len, unsigned reading,
    ngx_rl_path_t *out)
{
    const u_char      *last;
    ngx_rl_segment_t   seg;

    out->depth = 0;

    if (len == 0 || path[0] != '/') {
        return 0;
    }

    last = path + len;

    while (ngx_rl_segment_read(&path, last, reading, &seg)) {

        if (ngx_rl_segment_is_nothing(&seg)) {
            continue;
        }

        if (ngx_rl_segment_is_parent(&seg)) {
            out->depth -= (out->depth != 0);
            continue;
        }

        if (out->depth < NGX_RL_ROUTE_DEPTH) {
            out->segments[out->depth] = seg;
        }

        out->depth++;
    }

    return 1;
}


int
ngx_rl_segment_is_any(const ngx_rl_segment_t *seg)
{
    return seg->data[0] == '{' || (seg->data[0] == '*' && seg->len == 1);
}


static int
ngx_rl_route_match_path(const u_char *tmpl, size_t tmpl_len,
    const ngx_rl_path_t *path)
{
    size_t                   i;
    const u_char            *last;
    ngx_rl_segment_t         want;
    const ngx_rl_segment_t  *seg;

    last = tmpl + tmpl_len;

    for (i = 0; ngx_rl_segment_take(&tmpl, last, &want); i++) {

        if (ngx_rl_segment_is_rest(&want)) {
            return 1;
        }

        if (i == path->depth) {
            return 0;
        }

        if (ngx_rl_segment_is_any(&want)) {
            continue;
        }

        seg = &path->segments[i];

        if (seg->len != want.len || memcmp(seg->data, want.data, want.len) != 0)
        {
            return 0;
        }
    }

    return i == path->depth;
}


int
ngx_rl_route_match(const u_char *tmpl, size_t tmpl_len, const u_char *path,
    size_t path_len, int every)
{
    int             match;
    unsigned        reading, readings;
    ngx_rl_path_t   split;

    readings = ngx_rl_path_readings(path, path_len);

    for (reading = 0; reading < NGX_RL_PATH_READINGS; reading++) {

        if (reading & ~readings) {
            continue;
        }

        match = ngx_rl_path_split(path, path_len, reading, &split)
                && ngx_rl_route_match_path(tmpl, tmpl_len, &split);

        if (match != every) {
            return match;
        }
    }

    return every;
}


/* A decimal number, a UUID (RFC 9562), or 16 and more hexadecimal digits. */

static int
ngx_rl_segment_is_id(const ngx_rl_segment_t *seg)
{
    u_char  c;
    size_t  i, digits, hex, dashes;

    digits = 0;
    hex = 0;
    dashes = 0;

    for (i = 0; i < seg->len; i++) {
        c = seg->data[i];

        if (ngx_rl_hex_digit(c) >= 0) {
            hex++;
            digits += (c <= '9');

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


static u_char *
ngx_rl_segment_write(const ngx_rl_segment_t *seg, u_char *p)
{
    u_char  c;
    size_t  i;

    static const u_char  hex[] = "0123456789ABCDEF";

    if (ngx_rl_segment_is_id(seg)) {
        memcpy(p, "{id}", 4);
        return p + 4;
    }

    for (i = 0; i < seg->len; i++) {
        c = seg->data[i];

        if (ngx_rl_is_control(c)) {
            *p++ = '%';
            *p++ = hex[c >> 4];
            *p++ = hex[c & 15];

        } else {
            *p++ = c;
        }
    }

    return p;
}


size_t
ngx_rl_route_fold(const u_char *path, size_t path_len, u_char *out)
{
    u_char            *p;
    const u_char      *last;
    ngx_rl_segment_t   seg;

    p = out;
    last = path + path_len;

    while (ngx_rl_segment_take(&path, last, &seg)) {

        if (ngx_rl_segment_is_nothing(&seg)) {
            continue;
        }

        if (ngx_rl_segment_is_parent(&seg)) {
            while (p > out && *--p != '/') { /* void */ }
            continue;
        }

        *p++ = '/';
        p = ngx_rl_segment_write(&seg, p);
    }

    if (p == out) {
        *p++ = '/';
    }

    return p - out;
}


int
ngx_rl_segment_next(const u_char **pos, const u_char *last,
    ngx_rl_segment_t *seg)
{
    return ngx_rl_segment_take(pos, last, seg);
}
