/*
 * Responses to an operator, and their JSON. jansson's own header is not needed
 * here.
 */

#ifndef NGX_RL_JSON_H_INCLUDED
#define NGX_RL_JSON_H_INCLUDED

#include "ngx_rl_http.h"
#include "ngx_rl_check.h"

struct json_t;

/*
 * metrics.c: what outcomes are called, by ngx_rl_status_e. Empty: it is
 * counted by the zone, or not at all.
 */
extern const ngx_str_t  ngx_rl_outcomes[];

/* A text that grows, in a pool; zeroed: it is empty. */
typedef struct {
    ngx_str_t  text;
    size_t     room;  /* bytes that text.data has */
} ngx_rl_growing_t;

/* Makes room for size bytes behind the text. Its end; NULL: memory is out. */
u_char *ngx_rl_grow(ngx_pool_t *pool, ngx_rl_growing_t *growing, size_t size);

/* The header's texts must outlive the request. NGX_ERROR: memory is out. */
ngx_int_t ngx_rl_header(ngx_http_request_t *r, const char *name,
    const char *value);

/*
 * Sends a response, body in the pool of the request; type: NULL without one.
 * Returns what the request ends with.
 */
ngx_int_t ngx_rl_send(ngx_http_request_t *r, ngx_uint_t status,
    const ngx_str_t *type, const ngx_str_t *body);

/*
 * The text as a JSON string, with "?" for bytes that are no UTF-8. NULL:
 * memory is out.
 */
struct json_t *ngx_rl_json_text(const ngx_str_t *text);

/* The same; null for an empty text, or NULL. */
struct json_t *ngx_rl_json_name(const ngx_str_t *text);

/* RFC 3339 in UTC, with milliseconds. */
struct json_t *ngx_rl_json_time(uint64_t time_ms);

/* The same of the time in so many milliseconds. */
struct json_t *ngx_rl_json_later(uint64_t ms);

/* Appends json, which goes with the list. If memory is out, *list is NULL. */
void ngx_rl_json_append(struct json_t **list, struct json_t *json);

/* Set a member, or all of members, which go there. The same. */
void ngx_rl_json_set(struct json_t **json, const char *name,
    struct json_t *value);
void ngx_rl_json_merge(struct json_t **json, struct json_t *members);

/*
 * The algorithm, the limit and its window, and remaining, which goes there,
 * unless it is NULL. NULL: memory is out.
 */
struct json_t *ngx_rl_json_limit(const ngx_rl_limit_t *limit,
    struct json_t *remaining);

/*
 * The same, with the tokens left of a counter that was looked at. If Redis has
 * no answer, "unknown" says why. NULL: memory is out.
 */
struct json_t *ngx_rl_json_counter(const ngx_rl_look_t *look);

/*
 * Writes json to text, in the pool, with a line end, and frees json. NGX_ERROR:
 * memory is out, or json is NULL.
 */
ngx_int_t ngx_rl_json_dump(ngx_pool_t *pool, struct json_t *json,
    ngx_str_t *text);

#endif /* NGX_RL_JSON_H_INCLUDED */
