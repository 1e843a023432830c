/*
 * Reading a document's tree, and what "POST /check" asks: what the files that
 * do it share.
 */

#ifndef NGX_RL_READ_JSON_H_INCLUDED
#define NGX_RL_READ_JSON_H_INCLUDED

#include "ngx_rl_document.h"

#include <jansson.h>

/* types of a value, bits */
#define NGX_RL_JSON(type)  (1u << (type))
#define NGX_RL_IS_OBJECT   NGX_RL_JSON(JSON_OBJECT)
#define NGX_RL_IS_ARRAY    NGX_RL_JSON(JSON_ARRAY)
#define NGX_RL_IS_TEXT     NGX_RL_JSON(JSON_STRING)
#define NGX_RL_IS_NUMBER                                                      \
    (NGX_RL_JSON(JSON_INTEGER) | NGX_RL_JSON(JSON_REAL))
#define NGX_RL_IS_BOOLEAN                                                     \
    (NGX_RL_JSON(JSON_TRUE) | NGX_RL_JSON(JSON_FALSE))
#define NGX_RL_IS_ANY      0xff

/* beside the types of a member */
#define NGX_RL_IS_NEEDED   0x100
#define NGX_RL_IS_KEPT     0x200  /* a json_t * at the offset */

typedef struct ngx_rl_place_s   ngx_rl_place_t;
typedef struct ngx_rl_reader_s  ngx_rl_reader_t;

/* A place in the tree, on the stack of the function that walks there. */
struct ngx_rl_place_s {
    const ngx_rl_place_t  *up;      /* NULL: the root */
    const char            *name;    /* NULL: an element of an array */
    size_t                 number;  /* of an element */
};

/* sets of a source: see ngx_rl_policy_source_t */
#define NGX_RL_READ_DENY   0
#define NGX_RL_READ_ALLOW  1
#define NGX_RL_READ_TIERS  2
#define NGX_RL_READ_SETS   3

typedef struct {
    ngx_rl_rule_t         *rule;      /* NULL: the API key and the address */
    ngx_array_t            clients[NGX_RL_READ_SETS];   /* ngx_rl_known_t */
} ngx_rl_read_source_t;

struct ngx_rl_reader_s {
    ngx_rl_limiter_t      *limiter;
    ngx_rl_policy_t       *policy;
    ngx_pool_t            *pool;      /* the policy's */
    ngx_pool_t            *temp;      /* until the document is read */
    ngx_rl_problems_t     *problems;
    ngx_rl_problems_t     *warnings;  /* or NULL */
    const ngx_rl_problems_t  *known;  /* skipped before; or NULL */
    const ngx_rl_place_t  *at;        /* what is read now */

    ngx_rl_rule_t        **rules;     /* of nginx.conf, then as they stand in
                                         the document */
    uint32_t               nfixed;    /* of nginx.conf */
    uint32_t               nrules;    /* all */
    ngx_rl_map_t           ids;       /* of rules -> rules */
    ngx_array_t            sources;   /* ngx_rl_read_source_t: the API key is
                                         the first one */

    unsigned                      written:1; /* the document is not stored
                                                yet */
    unsigned                      inside:1;  /* of a rule or an override,
                                                which is skipped as a whole */
    unsigned                      newer:1;   /* unknown members are kept */
    unsigned                      hashed:1;  /* the tree becomes canonical */
    unsigned                      failed:1;  /* memory is out */
};

/* Reads the value at reader->at. */
typedef void (*ngx_rl_read_pt)(ngx_rl_reader_t *reader,
    json_t *value, void *data);

/* A member of an object. The last one of a table has no name. */
typedef struct ngx_rl_member_s  ngx_rl_member_t;

struct ngx_rl_member_s {
    const char             *name;
    ngx_uint_t              types;
    ngx_rl_read_pt          read;      /* or NULL */
    size_t                  offset;    /* in data: what read() gets */
    const char             *expected;  /* of a text that may not be empty */
    size_t                  most;      /* entries; 0: any number */
    ngx_uint_t              each;      /* types: read() gets each element */
    const ngx_rl_member_t  *members;   /* of an object, of the same data */
};

/* A value whose name is a key, the number-th; client: NULL if that is none. */
typedef void (*ngx_rl_named_pt)(ngx_rl_reader_t *reader, json_t *value,
    size_t number, const ngx_rl_known_t *client, void *data);


/* read_json.c */

/*
 * Adds a problem or a warning at a member of a member of what is read now: NULL
 * for the value itself. problems may be NULL. detail: as of ngx_sprintf().
 */
void ngx_rl_read_add(ngx_rl_reader_t *reader, ngx_rl_problems_t *problems,
    const char *in, const char *name, const char *detail, ...);

#define ngx_rl_read_wrong(reader, in, name, ...)                              \
    ngx_rl_read_add(reader, (reader)->problems, in, name, __VA_ARGS__)
#define ngx_rl_read_problem(reader, ...)                                      \
    ngx_rl_read_wrong(reader, NULL, NULL, __VA_ARGS__)

/*
 * Turns an expectation in the words of nginx.conf, which the functions of a
 * limit have, into the words of a document.
 */
#define NGX_RL_READ_WORDS  256   /* bytes */

const char *ngx_rl_read_words(const char *expected,
    char buf[NGX_RL_READ_WORDS]);

/* Zeroed memory of a pool. NULL: memory is out, which the reader knows. */
void *ngx_rl_read_alloc(ngx_rl_reader_t *reader, ngx_pool_t *pool, size_t size);

/* Whether a value is of these types: otherwise that is a problem. */
ngx_uint_t ngx_rl_read_is(ngx_rl_reader_t *reader, const json_t *value,
    ngx_uint_t types);

/*
 * An item of a stored document, which had n problems before the item was read:
 * where it has more now, the item is skipped, and they are no problems of the
 * document. The same of one that is written, where they are known. id: the
 * item's, or NULL. Returns 1: the item does not count.
 */
ngx_uint_t ngx_rl_read_skip(ngx_rl_reader_t *reader, ngx_uint_t n,
    const ngx_str_t *id);

/*
 * Whether an array or object, the member of that name unless it is NULL, has at
 * most max entries: otherwise that is a problem. Before memory is taken for
 * each of them. Other values have none.
 */
ngx_uint_t ngx_rl_read_few(ngx_rl_reader_t *reader, const char *name,
    const json_t *value, size_t max);

/*
 * Reads the members of an object, in the order of the table. null: as if it was
 * not there. A member that is not in the table is a problem, or, in a newer
 * format, a warning.
 */
void ngx_rl_read_members(ngx_rl_reader_t *reader, json_t *object,
    const ngx_rl_member_t *table, void *data);

/*
 * Reads the elements of an array or an object, or the one value that stands in
 * place of an array. Each is skipped where read_skip() says so.
 */
void ngx_rl_read_each(ngx_rl_reader_t *reader, json_t *list, ngx_uint_t types,
    ngx_rl_read_pt read, void *data);

/*
 * A whole number in a range: "100", also "1e2". Returns NGX_OK, or NGX_DECLINED
 * with the problem added.
 */
ngx_int_t ngx_rl_read_number(ngx_rl_reader_t *reader, const json_t *value,
    int64_t min, int64_t max, int64_t *number);

/* Members: a moment, which becomes seconds since the epoch in an int64_t. */
void ngx_rl_read_time(ngx_rl_reader_t *reader, json_t *value, void *data);

/* The editor has made "expires_at" of a duration, unless it is a problem. */
void ngx_rl_read_duration(ngx_rl_reader_t *reader, json_t *value, void *data);

/* The name of what is read now, and a copy in the policy's pool. */
ngx_str_t ngx_rl_read_name(const ngx_rl_reader_t *reader);
ngx_str_t ngx_rl_read_copy(ngx_rl_reader_t *reader, const ngx_str_t *text);

/* The rule of that id; NULL: there is none, with the problem added. */
ngx_rl_rule_t *ngx_rl_read_rule_of(ngx_rl_reader_t *reader,
    const ngx_str_t *id);

/* A tier's name: 1, or 0 with the problem added. */
ngx_uint_t ngx_rl_read_tier(ngx_rl_reader_t *reader, const ngx_str_t *tier);

/* A map for n entries: NGX_OK, or NGX_ERROR: memory is out. */
ngx_int_t ngx_rl_read_map(ngx_rl_reader_t *reader, ngx_pool_t *pool,
    ngx_rl_map_t *map, size_t n);

/* A text in a map: its number; and sets that, and returns the one before. */
uint32_t ngx_rl_read_find(const ngx_rl_map_t *map, const ngx_str_t *text);
uint32_t ngx_rl_read_enter(ngx_rl_map_t *map, const ngx_str_t *text,
    uint32_t number);


/* clients_json.c */

/*
 * Reads one API key, or also a glob if globs is set; or a value of the key of a
 * rule, unless that is NULL. The key is a string, which then gets its stored
 * form, or, if value is NULL, the name of the member. Sets the client's kind,
 * and its digest or its glob. Returns NGX_OK, or NGX_DECLINED with the problem
 * added.
 */
ngx_int_t ngx_rl_read_key(ngx_rl_reader_t *reader, json_t *value,
    ngx_uint_t globs, const ngx_rl_rule_t *rule, ngx_rl_known_t *client);

/*
 * Reads an object whose names are such keys. They get numbers from first on in
 * the map, which is made in the pool; if all is right, they become what is
 * stored of them.
 */
void ngx_rl_read_named(ngx_rl_reader_t *reader, json_t *object,
    const ngx_rl_rule_t *rule, ngx_pool_t *pool, ngx_rl_map_t *map,
    size_t first, ngx_rl_named_pt read, void *data);

/* Makes the policy's lists and sources of what was read of them. */
void ngx_rl_read_sources(ngx_rl_reader_t *reader);

/*
 * An entry of a list of clients, and members: "tier_of", and "overrides" behind
 * all rules.
 */
void ngx_rl_read_access(ngx_rl_reader_t *reader, json_t *value, void *data);
void ngx_rl_read_tier_assignments(ngx_rl_reader_t *reader, json_t *value,
    void *data);
void ngx_rl_read_overrides(ngx_rl_reader_t *reader, json_t *list,
    void *data);


/*
 * rule_json.c: an amount, of a tier or a key. algorithm: of the rule, or NULL
 * where the rule is not known. NGX_OK, or NGX_DECLINED with the problems added.
 */
ngx_int_t ngx_rl_read_amount(ngx_rl_reader_t *reader, json_t *value,
    const ngx_rl_algorithm_e *algorithm, ngx_rl_amount_t *amount);

/* One rule; its id is not entered anywhere yet */
void ngx_rl_read_rule(ngx_rl_reader_t *reader, json_t *value,
    ngx_rl_rule_t *rule);

#endif /* NGX_RL_READ_JSON_H_INCLUDED */
