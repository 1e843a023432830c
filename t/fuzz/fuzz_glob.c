/*
 * Any globs and any text: up to the first zero byte the globs, one a line,
 * behind it the text.
 */

#include <stdlib.h>

#include "ngx_rl_match.h"

#define must(condition)  do { if (!(condition)) abort(); } while (0)

#define MAX    64   /* globs */
#define SHORT  48   /* bytes of a text that all is tried on */


/* Row by row: whether what is before this byte of the text can be matched. */
static int
fuzz_naive(const ngx_rl_glob_text_t *glob, const u_char *text, size_t len)
{
    int     ok[SHORT + 1], next[SHORT + 1];
    size_t  i, t;
    u_char  c;

    for (t = 0; t <= len; t++) {
        ok[t] = (t == 0);
    }

    for (i = 0; i < glob->len; i++) {
        c = glob->data[i];

        for (t = 0; t <= len; t++) {

            if (c == '*') {
                next[t] = ok[t] || (t && next[t - 1]);

            } else {
                next[t] = t && ok[t - 1]
                          && (c == '?'
                              || text[t - 1]
                                 == (c == '\\' ? glob->data[i + 1] : c));
            }
        }

        i += (c == '\\');
        memcpy(ok, next, sizeof(ok));
    }

    return ok[len];
}


static int
fuzz_match(const ngx_rl_glob_text_t *glob, const u_char *text, size_t len)
{
    int      match;
    u_char  *copy;

    /* the sanitizer sees what is read behind it */

    copy = malloc(glob->len);
    must(copy != NULL);
    memcpy(copy, glob->data, glob->len);

    match = ngx_rl_glob_match(copy, glob->len, text, len);
    must(match == fuzz_naive(glob, text, len));
    must(match || !ngx_rl_glob_any(copy, glob->len));

    free(copy);

    return match;
}


static void
fuzz_list(const ngx_rl_glob_text_t *globs, size_t n, const u_char *text,
    size_t len)
{
    void      *memory;
    size_t     i;
    uint32_t   found;

    memory = malloc(ngx_rl_globs_bytes(n));
    must(memory != NULL);

    found = ngx_rl_globs_find(ngx_rl_globs_init(memory, globs, n), text, len);

    for (i = 0; i < n && !fuzz_match(&globs[i], text, len); i++) {
        /* void */
    }

    must(found == (i < n ? i : NGX_RL_GLOB_NONE));

    free(memory);
}


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    u_char              *text;
    size_t               n, len;
    const u_char        *p, *line, *last;
    ngx_rl_glob_text_t   globs[MAX];

    last = size ? memchr(data, 0, size) : NULL;
    last = last ? last : data + size;

    len = data + size - last;
    len = len ? len - 1 : 0;
    len = (len > SHORT) ? SHORT : len;

    text = malloc(len ? len : 1);
    must(text != NULL);

    if (len) {
        memcpy(text, last + 1, len);
    }

    n = 0;

    for (p = data; p < last && n < MAX; p = line + 1) {
        line = memchr(p, '\n', last - p);
        line = line ? line : last;

        if (ngx_rl_glob_check(p, line - p) == NULL) {
            globs[n].data = p;
            globs[n++].len = line - p;
        }
    }

    fuzz_list(globs, n, text, len);

    free(text);

    return 0;
}
