/*
 * Numbers, names and pairs as people write and read them. Everything is bounded
 * by the length given; nothing needs a terminating zero.
 */

#include "ngx_rl_text.h"
#include "ngx_rl_token_bucket.h"


int
ngx_rl_number_parse(const u_char *text, size_t len, uint64_t min, uint64_t max,
    uint64_t *value)
{
    size_t    i;
    uint64_t  n, digit;

    if (len == 0) {
        return -1;
    }

    n = 0;

    for (i = 0; i < len; i++) {

        if (text[i] < '0' || text[i] > '9') {
            return -1;
        }

        digit = text[i] - '0';

        if (n > max / 10 || digit > max - n * 10) {
            return -1;
        }

        n = n * 10 + digit;
    }

    if (n < min) {
        return -1;
    }

    *value = n;

    return 0;
}


/* 0: it is none */
static uint64_t
ngx_rl_period_unit_us(u_char c)
{
    return c == 's' ? 1000000
           : c == 'm' ? (uint64_t) 60 * 1000000
           : c == 'h' ? (uint64_t) 3600 * 1000000
           : c == 'd' ? (uint64_t) 86400 * 1000000 : 0;
}


const char *
ngx_rl_rate_parse(const u_char *text, size_t len, uint64_t *tokens,
    uint64_t *period_us)
{
    uint64_t       n, count, unit_us;
    const u_char  *p, *last;

    last = text + len;

    for (p = text; p < last && *p >= '0' && *p <= '9'; p++) { /* void */ }

    if (p < last && *p == '.') {
        return "a whole number of requests, as in \"1r/2s\" for one in two "
               "seconds";
    }

    if (ngx_rl_number_parse(text, p - text, 0, NGX_RL_MAX_TOKENS, &n) != 0) {
        return "a number of requests from 0 to 1073741824";
    }

    if (last - p < 2 || p[0] != 'r' || p[1] != '/') {
        return "\"r/\" and a period after the number of requests, "
               "as in \"100r/m\"";
    }

    p += 2;
    unit_us = (p < last) ? ngx_rl_period_unit_us(last[-1]) : 0;

    if (unit_us == 0) {
        return "a period of s, m, h or d, or a number of them, "
               "as in \"100r/m\"";
    }

    last--;
    count = 1;

    /* the maximum also keeps the product below 2^64 */

    if (p < last
        && ngx_rl_number_parse(p, last - p, 1, NGX_RL_MAX_PERIOD_US / unit_us,
                               &count)
           != 0)
    {
        return "a period from 1s to 366d";
    }

    *tokens = n;
    *period_us = count * unit_us;

    return NULL;
}


int
ngx_rl_number_clip(const u_char *text, size_t len, uint64_t max,
    uint64_t *value)
{
    size_t  i;

    if (ngx_rl_number_parse(text, len, 0, max, value) == 0) {
        return 0;
    }

    if (len == 0) {
        return -1;
    }

    for (i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return -1;
        }
    }

    *value = max;

    return 0;
}


/*
 * The text of a number below 10^8, with zeros in front, as 8 bytes of memory:
 * first two numbers of four digits, then four of two, then eight digits, all
 * at once (P. Khuong, "How to print integers really fast", 2017).
 */
static inline uint64_t
ngx_rl_eight_digits(uint32_t value)
{
    uint64_t  fours, twos, digits;

    fours = value / 10000 | (uint64_t) (value % 10000) << 32;

    /* a + ((x - 100 * a) << 16), where a is x / 100, and the like */

    twos = (fours * 10486 >> 20) & 0x0000007f0000007f;
    twos = (fours << 16) - twos * ((100 << 16) - 1);

    digits = (twos * 103 >> 10) & 0x000f000f000f000f;
    digits = (twos << 8) - digits * ((10 << 8) - 1);
    digits |= 0x3030303030303030;

#if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
    digits = __builtin_bswap64(digits);
#endif

    return digits;
}


u_char *
ngx_rl_number_write(u_char *out, uint64_t value)
{
    size_t    n;
    u_char   *p, *last;
    uint64_t  rest, upper, eight;

    static const char      pairs[] =
        "00010203040506070809" "10111213141516171819"
        "20212223242526272829" "30313233343536373839"
        "40414243444546474849" "50515253545556575859"
        "60616263646566676869" "70717273747576777879"
        "80818283848586878889" "90919293949596979899";

    static const uint64_t  powers[] = {
        1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000,
        1000000000, 10000000000, 100000000000, 1000000000000,
        10000000000000, 100000000000000, 1000000000000000,
        10000000000000000, 100000000000000000, 1000000000000000000,
        10000000000000000000u
    };

    /* most lengths in a command for Redis */

    if (value < 10) {
        *out = (u_char) ('0' + value);
        return out + 1;
    }

    /* the last eight digits of a long number are written behind the others */

    upper = (value < 100000000) ? value : value / 100000000;
    n = 1 + (upper >= 10);

    if (upper >= 100) {

        /* of b bits, b * log10(2) digits or one more */

        n = (64 - (size_t) __builtin_clzll(upper)) * 1233 >> 12;
        n += (upper >= powers[n]);
    }

    last = out + n;
    p = last;
    rest = upper;

    while (rest >= 100) {
        p -= 2;
        memcpy(p, &pairs[rest % 100 * 2], 2);
        rest /= 100;
    }

    if (rest >= 10) {
        memcpy(p - 2, &pairs[rest * 2], 2);

    } else {
        p[-1] = (u_char) ('0' + rest);
    }

    if (value < 100000000) {
        return last;
    }

    eight = ngx_rl_eight_digits((uint32_t) (value - upper * 100000000));
    memcpy(last, &eight, 8);

    return last + 8;
}


u_char *
ngx_rl_span_write(u_char *out, uint64_t seconds)
{
    size_t     i, len;
    u_char    *p;
    uint64_t   n;

    static const struct {
        uint64_t     seconds;
        const char  *name;
    } units[] = {
        { 86400, " day" }, { 3600, " hour" }, { 60, " minute" }, { 1,
            " second" }
    };

    for (i = 0; seconds == 0 || seconds % units[i].seconds; i++) {
        if (units[i].seconds == 1) {
            break;
        }
    }

    n = seconds / units[i].seconds;
    len = strlen(units[i].name);

    p = ngx_rl_number_write(out, n);
    memcpy(p, units[i].name, len);
    p += len;

    if (n != 1) {
        *p++ = 's';
    }

    return p;
}


int
ngx_rl_names_find(const char *const *names, const u_char *text, size_t len)
{
    int  i;

    for (i = 0; names[i]; i++) {
        if (strlen(names[i]) == len && memcmp(names[i], text, len) == 0) {
            return i;
        }
    }

    return -1;
}


u_char *
ngx_rl_names_write(u_char *out, u_char *last, const char *const *names)
{
    size_t       len, room;
    const char  *before;

    for ( /* void */ ; *names; names++) {
        len = strlen(*names);
        room = (size_t) (last - out);
        before = names[1] ? ", " : "";
        before = (names[1] && names[2] == NULL) ? " or " : before;

        if (len + 2 + strlen(before) > room) {
            break;
        }

        *out++ = '"';
        memcpy(out, *names, len);
        out += len;
        *out++ = '"';
        memcpy(out, before, strlen(before));
        out += strlen(before);
    }

    return out;
}


int
ngx_rl_name_valid(const u_char *text, size_t len)
{
    u_char  c;
    size_t  i;

    if (len == 0 || len > 64) {
        return 0;
    }

    for (i = 0; i < len; i++) {
        c = text[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
              || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-'))
        {
            return 0;
        }
    }

    return 1;
}


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
