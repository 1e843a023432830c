/* Any query string, which is any Cookie header as well. */

#include <stdlib.h>

#include "ngx_rl_text.h"

#define must(condition)  do { if (!(condition)) abort(); } while (0)

typedef int (*next_pt)(const u_char **text, const u_char *last,
    ngx_rl_pair_t *pair);
typedef size_t (*decode_pt)(const u_char *text, size_t len, u_char *out);


/* In as much memory as there is, and in place: the same, and no longer. */
static size_t
fuzz_decode(decode_pt decode, const u_char *text, size_t len, u_char *out)
{
    size_t   n;
    u_char  *copy;

    n = decode(text, len, out);
    must(n <= len);

    copy = malloc(len ? len : 1);
    must(copy != NULL);
    memcpy(copy, text, len);

    must(decode(copy, len, copy) == n && memcmp(copy, out, n) == 0);

    free(copy);

    return n;
}


static void
fuzz_pair(const ngx_rl_pair_t *pair)
{
    size_t   n;
    u_char  *out;

    n = (pair->name_len > pair->value_len) ? pair->name_len : pair->value_len;
    out = malloc(n ? n : 1);
    must(out != NULL);

    /* a name is the one that it decodes to, and no longer one */

    n = fuzz_decode(ngx_rl_query_decode, pair->name, pair->name_len, out);
    must(ngx_rl_query_name(pair, out, n, 0) == 1);
    must(n == 0 || ngx_rl_query_name(pair, out, n - 1, 1) == 0);

    fuzz_decode(ngx_rl_query_decode, pair->value, pair->value_len, out);
    n = fuzz_decode(ngx_rl_cookie_decode, pair->value, pair->value_len, out);

    must(ngx_rl_cookie_encoded(pair->value, pair->value_len)
         || (n == pair->value_len && memcmp(out, pair->value, n) == 0));

    free(out);
}


/* Pairs lie in the text, one behind the other, and end where it does. */
static void
fuzz_pairs(next_pt next, const u_char *text, const u_char *last)
{
    const u_char   *p, *before;
    ngx_rl_pair_t   pair;

    p = text;

    for (before = p; next(&p, last, &pair); before = p) {
        must(p > before && p <= last);
        must(pair.name >= before && pair.name + pair.name_len <= p);
        must(pair.value > pair.name || pair.value_len == 0);
        must(pair.value + pair.value_len <= p);

        fuzz_pair(&pair);
    }

    must(p == last);
}


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    u_char  *text;

    /* the sanitizer sees what is read behind it */

    text = malloc(len ? len : 1);
    must(text != NULL);

    if (len) {
        memcpy(text, data, len);
    }

    fuzz_pairs(ngx_rl_query_pair, text, text + len);
    fuzz_pairs(ngx_rl_cookie_pair, text, text + len);

    free(text);

    return 0;
}
