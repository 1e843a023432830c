/*
 * The readers of directives, and what they share.
 */

#ifndef NGX_RL_CONF_H_INCLUDED
#define NGX_RL_CONF_H_INCLUDED

#include "ngx_rl_http.h"

/* see ngx_rl_name_valid() */
#define NGX_RL_NAME_EXPECTED                                                  \
    "1 to 64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\""

/*
 * conf.c: collects the names that are known where a wrong one was found,
 * for the end of a message: 'did you mean "burst="?', or 'expected ' and all of
 * them. The text lives as long as the hint.
 */
typedef struct {
    ngx_str_t    wrong;
    ngx_str_t    near;                        /* is like it; empty: none is */
    u_char      *p;                           /* the end of the list */
    u_char       list[NGX_MAX_CONF_ERRSTR];
    ngx_str_t    text;
    u_char       buf[NGX_MAX_CONF_ERRSTR];
} ngx_rl_hint_t;

ngx_str_t *ngx_rl_hint_text(ngx_rl_hint_t *hint, const char *expected);

/*
 * The element of that name in an array of pointers, of which each has its name
 * at the offset; or NULL: the hint has all names, unless it is NULL.
 */
void *ngx_rl_named(const ngx_array_t *array, size_t offset,
    const ngx_str_t *name, ngx_rl_hint_t *hint);

#define ngx_rl_zone_named(conf, name)                                         \
    ngx_rl_named(&(conf)->zones,                                              \
                 offsetof(ngx_rl_zone_conf_t, limiter.zone.name), name, NULL)

/*
 * Logs what is wrong with the directive that is read: its name and the text.
 * Always NGX_CONF_ERROR.
 */
char *ngx_rl_wrong(ngx_conf_t *cf, const char *fmt, ...);

/* The same of one that was read before: the text and the place. NGX_ERROR. */
ngx_int_t ngx_rl_wrong_at(ngx_conf_t *cf, ngx_uint_t level,
    const ngx_rl_conf_place_t *place, const char *fmt, ...);

/*
 * The zone of that name when all is read; NULL: it is logged, with the
 * directive, the id of what it makes, or NULL, and its place.
 */
ngx_rl_zone_conf_t *ngx_rl_zone_find(ngx_conf_t *cf, ngx_rl_main_conf_t *conf,
    ngx_str_t *name, const char *directive, const ngx_str_t *id,
    const ngx_rl_conf_place_t *place);

/* The value of "name=value", or NULL where text is another parameter. */
ngx_str_t *ngx_rl_parameter(ngx_str_t *text, const char *name,
    ngx_str_t *value);

/*
 * A parameter of a directive, or a line of a block: a row of a table. It ends
 * with a row without a name, whose expected stands before the names where one
 * is unknown. set() returns NULL, or the expected value; "": what is wrong is
 * logged already.
 */
typedef struct ngx_rl_row_s  ngx_rl_row_t;

struct ngx_rl_row_s {
    ngx_str_t     name;       /* "zone=", "write", or that of a line */
    const char *(*set)(ngx_conf_t *cf, void *target, const ngx_rl_row_t *row,
                       ngx_str_t *value);
    size_t        offset;     /* in the target, of what is set */
    uint64_t      min;        /* of a number, of seconds */
    uint64_t      max;        /* the same; bytes of a text, if not 0 */
    const char   *expected;
    size_t        other;      /* offset of what is set beside it */
    unsigned      needed:1;
};

#define ngx_rl_row_at(target, row)                                            \
    ((void *) ((u_char *) (target) + (row)->offset))

/* set() of a text that is not empty */
const char *ngx_rl_row_text(ngx_conf_t *cf, void *target,
    const ngx_rl_row_t *row, ngx_str_t *value);

/* set() of "on" or "off" */
const char *ngx_rl_row_flag(ngx_conf_t *cf, void *target,
    const ngx_rl_row_t *row, ngx_str_t *value);

/* the lines of a block that has a member "tls" */
#define NGX_RL_TLS_ROWS(type)                                                 \
    { ngx_string("tls"), ngx_rl_row_flag, offsetof(type, tls.on),             \
      .expected = "\"on\" or \"off\"" },                                      \
    { ngx_string("tls_ca"), ngx_rl_row_text, offsetof(type, tls.ca),          \
      .expected = "a text" },                                                 \
    { ngx_string("tls_name"), ngx_rl_row_text, offsetof(type, tls.name),      \
      .max = NGX_RL_TLS_MAX_NAME, .expected = "1 to 255 characters" },        \
    { ngx_string("tls_certificate"), ngx_rl_row_text,                         \
      offsetof(type, tls.certificate), .expected = "a text" },                \
    { ngx_string("tls_certificate_key"), ngx_rl_row_text,                     \
      offsetof(type, tls.key), .expected = "a text" }

/*
 * redis_conf.c: set() of a file's first line without its end; row->other: of
 * the file's whole path
 */
const char *ngx_rl_row_line(ngx_conf_t *cf, void *target,
    const ngx_rl_row_t *row, ngx_str_t *value);

/* guard.c: set() of a file of tokens: an array of them, with one or more */
const char *ngx_rl_row_tokens(ngx_conf_t *cf, void *target,
    const ngx_rl_row_t *row, ngx_str_t *value);

/* The row of a text, and its value; or NULL: the hint has all names. */
const ngx_rl_row_t *ngx_rl_row_find(const ngx_rl_row_t *rows, ngx_str_t *text,
    ngx_str_t *value, ngx_rl_hint_t *hint);

/*
 * Reads the directive's arguments from a place on. usage: what to expect
 * instead of a wrong one, whatever is wrong with it; NULL: the row says it. If
 * a needed one is missing, the message has the directive's first argument.
 * Returns NGX_CONF_OK or NGX_CONF_ERROR (logged).
 */
char *ngx_rl_rows_read(ngx_conf_t *cf, const ngx_rl_row_t *rows,
    void *target, ngx_uint_t from, const char *usage);

/* Adds a pointer to an array of them. Returns NGX_OK or NGX_ERROR (memory). */
ngx_int_t ngx_rl_push(ngx_array_t *array, void *pointer);

/* Where the directive that is read stands. */
void ngx_rl_place(ngx_conf_t *cf, ngx_rl_conf_place_t *place);


/*
 * Reads the file of that name, which becomes a whole path, to the heap: max
 * bytes, or one more if it has more. The caller frees content. NGX_ERROR:
 * the file cannot be read, or memory is out; it is logged, with the directive.
 */
ngx_int_t ngx_rl_file_read(ngx_conf_t *cf, ngx_str_t *name, size_t max,
    ngx_str_t *content);

/* Overwrites the content, which is a secret, and frees it. */
void ngx_rl_file_free(ngx_str_t *content);


/* rule_conf.c, redis_conf.c: the directives of these names */
char *ngx_rl_zone_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_rl_rule_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_rl_location_limit(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_rl_tier(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_rl_once(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_rl_redis_block(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_rl_peers_block(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* Called for a merged location: tells its limits of its tier and templates. */
void ngx_rl_limit_location(ngx_conf_t *cf, ngx_rl_loc_conf_t *conf);

/*
 * When all is read, what only the whole configuration tells. Each step returns
 * NGX_OK or NGX_ERROR (logged); most are called for each entry of an array.
 */
ngx_int_t ngx_rl_resolve(ngx_conf_t *cf);

/*
 * redis_conf.c: gives each block the resolver of http {}, or resolves its names
 * now.
 */
ngx_int_t ngx_rl_redis_names(ngx_conf_t *cf, ngx_rl_main_conf_t *conf);

/* peers_conf.c: the same for a block of peers. */
ngx_int_t ngx_rl_peers_resolve_names(ngx_conf_t *cf, ngx_rl_main_conf_t *conf,
    void *entry);

/* penalty_conf.c: gives one its zone, before the zones' rules are complete. */
ngx_int_t ngx_rl_penalty_resolve(ngx_conf_t *cf, ngx_rl_main_conf_t *conf,
    void *entry);

/* access_conf.c: makes the list of a zone. */
ngx_int_t ngx_rl_access_resolve(ngx_conf_t *cf, ngx_rl_main_conf_t *conf,
    void *entry);

/* the directive of an answer's headers; and those of one of cmd->post */
char *ngx_rl_set_headers(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_rl_set_enum(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* cmd->post of set_number(): the number with its suffix, and what to expect */
typedef struct {
    uint64_t     min;
    uint64_t     max;
    const char  *suffix;
    const char  *expected;
} ngx_rl_number_t;

char *ngx_rl_set_number(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* penalty_conf.c: the directive of this name */
char *ngx_rl_penalty_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* access_conf.c: "ratelimit_deny" and "ratelimit_allow" */
char *ngx_rl_access(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* metrics.c: the directive of this name, which makes its location exempt */
char *ngx_rl_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

#endif /* NGX_RL_CONF_H_INCLUDED */
