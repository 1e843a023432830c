/*
 * Query strings and Cookie headers. Everything is bounded by the length given;
 * the output is never longer than the input.
 */

#include "ngx_rl_pair.h"

#include "ngx_rl_text.h"


static const u_char *
ngx_rl_pair_find(const u_char *text, const u_char *last, u_char ch)
{
    const u_char  *p;

    p = (text < last) ? memchr(text, ch, last - text) : NULL;

    return p ? p : last;
}


int
ngx_rl_query_pair(const u_char **text, const u_char *last, ngx_rl_pair_t *pair)
{
    const u_char  *p, *end, *equal;

    p = *text;

    if (p >= last) {
        return 0;
    }

    end = ngx_rl_pair_find(p, last, '&');
    equal = ngx_rl_pair_find(p, end, '=');

    pair->name = p;
    pair->name_len = equal - p;
    pair->value = (equal < end) ? equal + 1 : end;
    pair->value_len = end - pair->value;

    *text = (end < last) ? end + 1 : last;

    return 1;
}


/* The length of what stands for one byte; "%41" writes it to *ch. */
static int
ngx_rl_pair_escape(const u_char *text, const u_char *last, u_char *ch)
{
    int  high, low;

    if (*text != '%' || last - text < 3) {
        return 1;
    }

    high = ngx_rl_hex_digit(text[1]);
    low = ngx_rl_hex_digit(text[2]);

    if (high < 0 || low < 0) {
        return 1;
    }

    *ch = (u_char) (high * 16 + low);

    return 3;
}


int
ngx_rl_caseless(const u_char *one, const u_char *two, size_t len)
{
    u_char  a;

    while (len--) {
        a = one[len] | 0x20;

        if (one[len] != two[len]
            && (a != (two[len] | 0x20) || a < 'a' || a > 'z'))
        {
            return 0;
        }
    }

    return 1;
}


int
ngx_rl_query_name(const ngx_rl_pair_t *pair, const u_char *name, size_t len,
    int caseless)
{
    u_char         ch;
    size_t         n;
    const u_char  *p, *last;

    p = pair->name;
    last = p + pair->name_len;

    for (n = 0; p < last && n < len; n++) {
        ch = (*p == '+') ? ' ' : *p;
        p += ngx_rl_pair_escape(p, last, &ch);

        if (caseless ? !ngx_rl_caseless(&ch, &name[n], 1) : ch != name[n]) {
            return 0;
        }
    }

    return p == last && n == len;
}


size_t
ngx_rl_query_decode(const u_char *text, size_t len, u_char *out)
{
    u_char        *dst;
    const u_char  *p, *last;

    last = text + len;
    dst = out;

    for (p = text; p < last; dst++) {
        *dst = (*p == '+') ? ' ' : *p;
        p += ngx_rl_pair_escape(p, last, dst);
    }

    return dst - out;
}


static void
ngx_rl_pair_trim(const u_char **text, size_t *len)
{
    while (*len && (**text == ' ' || **text == '\t')) {
        (*text)++;
        (*len)--;
    }

    while (*len && ((*text)[*len - 1] == ' ' || (*text)[*len - 1] == '\t')) {
        (*len)--;
    }
}


int
ngx_rl_cookie_pair(const u_char **text, const u_char *last, ngx_rl_pair_t *pair)
{
    const u_char  *p, *end, *equal;

    for (p = *text; p < last; p = (end < last) ? end + 1 : last) {
        end = ngx_rl_pair_find(p, last, ';');
        equal = ngx_rl_pair_find(p, end, '=');

        if (equal == end) {
            continue;
        }

        pair->name = p;
        pair->name_len = equal - p;
        pair->value = equal + 1;
        pair->value_len = end - pair->value;

        ngx_rl_pair_trim(&pair->name, &pair->name_len);
        ngx_rl_pair_trim(&pair->value, &pair->value_len);

        *text = (end < last) ? end + 1 : last;

        return 1;
    }

    *text = last;

    return 0;
}


static int
ngx_rl_pair_quoted(const u_char *text, size_t len)
{
    return len >= 2 && text[0] == '"' && text[len - 1] == '"';
}


size_t
ngx_rl_cookie_decode(const u_char *text, size_t len, u_char *out)
{
    int            quoted;
    u_char        *dst;
    const u_char  *p, *last;

    quoted = ngx_rl_pair_quoted(text, len);
    p = text + quoted;
    last = text + len - quoted;

    for (dst = out; p < last; dst++) {

        if (!quoted || *p != '\\' || last - p < 2) {
            *dst = *p;
            p += ngx_rl_pair_escape(p, last, dst);

        } else if (last - p < 4
                   || p[1] < '0' || p[1] > '3'
                   || p[2] < '0' || p[2] > '7'
                   || p[3] < '0' || p[3] > '7')
        {
            *dst = p[1];
            p += 2;

        } else {
            *dst = (u_char) ((p[1] - '0') * 64 + (p[2] - '0') * 8
                             + (p[3] - '0'));
            p += 4;
        }
    }

    return dst - out;
}


int
ngx_rl_cookie_encoded(const u_char *text, size_t len)
{
    const u_char  *last;

    last = text + len;

    return ngx_rl_pair_find(text, last, '%') < last
           || ngx_rl_pair_quoted(text, len);
}
