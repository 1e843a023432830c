/*
 * Globs: "*" stands for any number of bytes, "?" for one, "\" makes the next
 * byte stand for itself. In a list of them the first that matches counts. A
 * text with one "*" behind it is found by a hash for each length of such texts,
 * the others one by one.
 */

#ifndef NGX_RL_GLOB_H_INCLUDED
#define NGX_RL_GLOB_H_INCLUDED

#include "ngx_rl_types.h"

#define NGX_RL_GLOB_MAX   256   /* bytes of one */
#define NGX_RL_GLOB_NONE  ((uint32_t) -1)

/* Returns NULL, or what was expected, as a constant string. */
const char *ngx_rl_glob_check(const u_char *glob, size_t len);

/* Whether the glob has a "*" or "?", so that it is more than one text. */
int ngx_rl_glob_wild(const u_char *glob, size_t len);

/* Whether it matches every text. */
int ngx_rl_glob_any(const u_char *glob, size_t len);

/* Whether a checked glob matches a text. Takes at most glob_len * len steps. */
int ngx_rl_glob_match(const u_char *glob, size_t glob_len, const u_char *text,
    size_t len);

typedef struct {
    const u_char  *data;
    size_t         len;
} ngx_rl_glob_text_t;

typedef struct ngx_rl_globs_s  ngx_rl_globs_t;

/*
 * Makes a list of n checked globs in memory of the caller, of globs_bytes(n):
 * texts are not copied. number of a glob: its place, from 0.
 */
size_t ngx_rl_globs_bytes(size_t n);
ngx_rl_globs_t *ngx_rl_globs_init(void *memory, const ngx_rl_glob_text_t *globs,
    size_t n);

/* The number of the first glob that matches, or NONE. globs may be NULL. */
uint32_t ngx_rl_globs_find(const ngx_rl_globs_t *globs, const u_char *text,
    size_t len);

#endif /* NGX_RL_GLOB_H_INCLUDED */
