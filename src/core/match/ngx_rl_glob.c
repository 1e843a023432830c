/*
 * Globs and lists of them.
 *
 * To match, the last "*" seen is all that has to be remembered: if what follows
 * it fits somewhere, its first place will do, for the next "*" takes the rest.
 *
 * A list has a table of its prefixes, at most half full, found by a hash of
 * their bytes. A text is hashed byte by byte, and looked up at each length that
 * a prefix has.
 */

#include "ngx_rl_glob.h"

#include "ngx_rl_map.h"

#define NGX_RL_GLOB_LENGTHS  (NGX_RL_GLOB_MAX + 1)
#define NGX_RL_GLOB_SEED     2166136261u

typedef struct {
    uint32_t  hash;
    uint32_t  number;                /* NONE: the place is free */
} ngx_rl_glob_place_t;

struct ngx_rl_globs_s {
    ngx_rl_glob_text_t   *globs;     /* by number */
    ngx_rl_glob_place_t  *places;    /* of prefixes */
    uint32_t             *others;    /* numbers, ascending */
    uint32_t              mask;
    uint32_t              nothers;
    uint32_t              nlengths;
    uint16_t              lengths[NGX_RL_GLOB_LENGTHS];
                                            /* of prefixes, ascending */
};


const char *
ngx_rl_glob_check(const u_char *glob, size_t len)
{
    size_t  i;

    if (len == 0 || len > NGX_RL_GLOB_MAX) {
        return "1 to 256 bytes";
    }

    for (i = 0; i < len; i++) {

        if (glob[i] == '\\' && ++i == len) {
            return "another byte behind \"\\\"";
        }
    }

    return NULL;
}


int
ngx_rl_glob_wild(const u_char *glob, size_t len)
{
    size_t  i;

    for (i = 0; i < len; i++) {

        if (glob[i] == '*' || glob[i] == '?') {
            return 1;
        }

        if (glob[i] == '\\') {
            i++;
        }
    }

    return 0;
}


int
ngx_rl_glob_any(const u_char *glob, size_t len)
{
    size_t  i;

    for (i = 0; i < len; i++) {

        if (glob[i] != '*') {
            return 0;
        }
    }

    return len > 0;
}


int
ngx_rl_glob_match(const u_char *glob, size_t glob_len, const u_char *text,
    size_t len)
{
    size_t        n;
    const u_char  *p, *last, *t, *end, *star, *from;

    p = glob;
    last = glob + glob_len;
    t = text;
    end = text + len;
    star = NULL;                    /* behind the last one */
    from = NULL;                    /* and where its rest was tried */

    for ( ;; ) {

        if (p < last && *p == '*') {
            star = ++p;
            from = t;

            if (star == last) {
                return 1;
            }

            continue;
        }

        if (t == end && p == last) {
            return 1;
        }

        if (t < end && p < last) {
            n = (*p == '\\');

            if ((n == 0 && *p == '?') || p[n] == *t) {
                p += n + 1;
                t++;
                continue;
            }
        }

        /* a text too short for the rest here is too short further on */

        if (star == NULL || t == end) {
            return 0;
        }

        p = star;
        t = ++from;
    }
}


size_t
ngx_rl_globs_bytes(size_t n)
{
    return sizeof(ngx_rl_globs_t)
           + n * sizeof(ngx_rl_glob_text_t)
           + ngx_rl_map_places(n) * sizeof(ngx_rl_glob_place_t)
           + n * sizeof(uint32_t);
}


/* Whether it is a text, as it stands, and one "*" behind it. */
static int
ngx_rl_glob_prefix(const ngx_rl_glob_text_t *glob)
{
    size_t  i;

    for (i = 0; i + 1 < glob->len; i++) {

        if (glob->data[i] == '*' || glob->data[i] == '?'
            || glob->data[i] == '\\')
        {
            return 0;
        }
    }

    return glob->data[i] == '*';
}


/* FNV-1a, which goes on where it ended. */
static uint32_t
ngx_rl_glob_hash(uint32_t hash, const u_char *p, const u_char *last)
{
    for ( /* void */ ; p < last; p++) {
        hash = (hash ^ *p) * 16777619u;
    }

    return hash;
}


/* The prefix' place, or the free one where it would stand. */
static ngx_rl_glob_place_t *
ngx_rl_globs_place(const ngx_rl_globs_t *list, uint32_t hash,
    const u_char *text, size_t len)
{
    uint32_t                   i;
    ngx_rl_glob_place_t       *place;
    const ngx_rl_glob_text_t  *glob;

    /* FNV's low bits know little of the bytes' high ones */

    for (i = hash ^ (hash >> 15); /* void */ ; i++) {
        place = &list->places[i & list->mask];

        if (place->number == NGX_RL_GLOB_NONE) {
            return place;
        }

        glob = &list->globs[place->number];

        if (place->hash == hash && glob->len - 1 == len
            && memcmp(glob->data, text, len) == 0)
        {
            return place;
        }
    }
}


ngx_rl_globs_t *
ngx_rl_globs_init(void *memory, const ngx_rl_glob_text_t *globs, size_t n)
{
    size_t                i, len;
    u_char                seen[NGX_RL_GLOB_LENGTHS];
    uint32_t              hash;
    ngx_rl_globs_t       *list;
    ngx_rl_glob_place_t  *place;

    list = memory;
    list->globs = (ngx_rl_glob_text_t *) (list + 1);
    list->places = (ngx_rl_glob_place_t *) (list->globs + n);
    list->mask = (uint32_t) ngx_rl_map_places(n) - 1;
    list->others = (uint32_t *) (list->places + list->mask + 1);
    list->nothers = 0;
    list->nlengths = 0;

    for (i = 0; i <= list->mask; i++) {
        list->places[i].number = NGX_RL_GLOB_NONE;
    }

    memset(seen, 0, sizeof(seen));

    for (i = 0; i < n; i++) {
        list->globs[i] = globs[i];

        if (!ngx_rl_glob_prefix(&globs[i])) {
            list->others[list->nothers++] = (uint32_t) i;
            continue;
        }

        len = globs[i].len - 1;
        seen[len] = 1;

        hash = ngx_rl_glob_hash(NGX_RL_GLOB_SEED, globs[i].data,
                                globs[i].data + len);
        place = ngx_rl_globs_place(list, hash, globs[i].data, len);

        /* of equal ones the first counts */

        if (place->number == NGX_RL_GLOB_NONE) {
            place->hash = hash;
            place->number = (uint32_t) i;
        }
    }

    for (len = 0; len < NGX_RL_GLOB_LENGTHS; len++) {

        if (seen[len]) {
            list->lengths[list->nlengths++] = (uint16_t) len;
        }
    }

    return list;
}


uint32_t
ngx_rl_globs_find(const ngx_rl_globs_t *list, const u_char *text, size_t len)
{
    size_t                      done;
    uint32_t                    i, best, hash;
    const ngx_rl_glob_text_t   *glob;
    const ngx_rl_glob_place_t  *place;

    best = NGX_RL_GLOB_NONE;

    if (list == NULL) {
        return best;
    }

    /* the first of the prefixes that the text begins with */

    hash = NGX_RL_GLOB_SEED;
    done = 0;

    for (i = 0; i < list->nlengths && list->lengths[i] <= len; i++) {
        hash = ngx_rl_glob_hash(hash, text + done, text + list->lengths[i]);
        done = list->lengths[i];

        place = ngx_rl_globs_place(list, hash, text, done);
        best = ngx_rl_min(best, place->number);
    }

    for (i = 0; i < list->nothers && list->others[i] < best; i++) {
        glob = &list->globs[list->others[i]];

        if (ngx_rl_glob_match(glob->data, glob->len, text, len)) {
            return list->others[i];
        }
    }

    return best;
}
