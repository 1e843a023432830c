/*
 * Reading a document's tree: what the files that do it share. Inside
 * src/rules/ngx_ratelimit_ngx_ratelimit_*_json.c only.
 */

#ifndef NGX_RATELIMIT_READ_JSON_H_INCLUDED
#define NGX_RATELIMIT_READ_JSON_H_INCLUDED

#include "ngx_ratelimit_document_json.h"

#include <jansson.h>

#define NGX_RATELIMIT_SHA256      32   /* bytes */

/* types of a member, bits */
#define NGX_RATELIMIT_JSON(type)  (1u << JSON_##type)
#define NGX_RATELIMIT_IS_OBJECT   NGX_RATELIMIT_JSON(OBJECT)
#define NGX_RATELIMIT_IS_ARRAY    NGX_RATELIMIT_JSON(ARRAY)
#define NGX_RATELIMIT_IS_TEXT     NGX_RATELIMIT_JSON(STRING)
#define NGX_RATELIMIT_IS_NUMBER                                               \
    (NGX_RATELIMIT_JSON(INTEGER) | NGX_RATELIMIT_JSON(REAL))
#define NGX_RATELIMIT_IS_BOOLEAN                                              \
    (NGX_RATELIMIT_JSON(TRUE) | NGX_RATELIMIT_JSON(FALSE))

typedef struct ngx_ratelimit_place_s   ngx_ratelimit_place_t;
typedef struct ngx_ratelimit_reader_s  ngx_ratelimit_reader_t;

/* A place in the tree, on the stack of who reads there. */
struct ngx_ratelimit_place_s {
    const ngx_ratelimit_place_t  *up;      /* NULL: the root */
    const char                   *name;    /* NULL: a number */
    size_t                        number;
};

struct ngx_ratelimit_reader_s {
    ngx_ratelimit_limiter_t      *limiter;
    ngx_ratelimit_policy_t       *policy;
    ngx_pool_t                   *pool;      /* the policy's */
    ngx_ratelimit_problems_t     *problems;
    ngx_ratelimit_problems_t     *warnings;  /* or NULL */
    const ngx_ratelimit_problems_t  *known;  /* skipped before; or NULL */

    ngx_ratelimit_rule_t        **rules;     /* of nginx.conf, then as they
                                                stand in the document */
    uint32_t                      nfixed;    /* of nginx.conf */
    uint32_t                      nrules;    /* all */
    ngx_ratelimit_map_t           ids;       /* of rules -> rules */
    ngx_ratelimit_map_t           parts;     /* of their keys */

    ngx_uint_t                    fits;      /* tried, of overrides */

    unsigned                      written:1; /* a document that is not stored
                                                yet */
    unsigned                      inside:1;  /* of a rule: what is wrong with a
                                                part is wrong with the whole */
    unsigned                      newer:1;   /* unknown members are kept */
    unsigned                      hashed:1;  /* the tree becomes canonical */
    unsigned                      failed:1;  /* memory is out */
};

typedef void (*ngx_ratelimit_member_pt)(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);

/* A member of an object. The last one of a table has no name. */
typedef struct {
    const char               *name;
    ngx_uint_t                types;
    ngx_ratelimit_member_pt   read;     /* NULL: nothing is to be done */
} ngx_ratelimit_member_t;

/* An API key, or a glob of them. */
typedef struct {
    ngx_str_t   glob;                   /* empty: it is one key; in the tree */
    u_char      sha256[NGX_RATELIMIT_SHA256];
} ngx_ratelimit_api_key_t;


/* read_json.c */

/* A problem, or a warning, there: a format of ngx_sprintf(). */
void ngx_ratelimit_read_problem(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const char *detail, ...);
void ngx_ratelimit_read_warning(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const char *detail, ...);

/* The same, at a member, of a member unless that is NULL, of the object. */
void ngx_ratelimit_read_wrong(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const char *in, const char *name,
    const char *detail, ...);

/* What the functions of a limit expect, whose words are those of nginx.conf. */
void ngx_ratelimit_read_expected(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const char *in, const char *name,
    const char *expected);

/* That in the words of a document, in buf. */
#define NGX_RATELIMIT_READ_WORDS  256   /* bytes */

ngx_str_t ngx_ratelimit_read_words(const char *expected,
    u_char buf[NGX_RATELIMIT_READ_WORDS]);

/* Memory of the policy, zeroed. NULL: memory is out, which the reader knows. */
void *ngx_ratelimit_read_alloc(ngx_ratelimit_reader_t *reader, size_t size);

/* Whether a value is of these types: otherwise that is a problem. */
ngx_uint_t ngx_ratelimit_read_is(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const json_t *value, ngx_uint_t types);

/*
 * An item of a stored document, which had n problems before the item was read:
 * where it has more now, the item is skipped, and they are no problems of the
 * document. The same of one that is written, where they are known. id: the
 * item's, or NULL. Returns 1: the item does not count.
 */
ngx_uint_t ngx_ratelimit_read_skip(ngx_ratelimit_reader_t *reader,
    ngx_uint_t n, const ngx_str_t *id);

/*
 * Whether an array or object, the member of that name unless it is NULL, has at
 * most max entries: otherwise that is a problem. Before memory is taken for
 * each of them. Other values have none.
 */
ngx_uint_t ngx_ratelimit_read_few(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const char *name, const json_t *value,
    size_t max);

/*
 * Reads the members of an object, in the order of the table. null: as if it was
 * not there. What is not in the table is a problem, or, in a newer format, a
 * warning. Returns bits: those there are, by their place in the table.
 */
uint64_t ngx_ratelimit_read_members(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *object,
    const ngx_ratelimit_member_t *table, void *data);

/* Members that are needed (bits) and that are not there are problems. */
void ngx_ratelimit_read_missing(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_ratelimit_member_t *table,
    uint64_t has, uint64_t needed);

/*
 * A whole number in a range: "100", also "1e2". Returns NGX_OK, or NGX_DECLINED
 * with the problem added.
 */
ngx_int_t ngx_ratelimit_read_number(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const json_t *value, int64_t min,
    int64_t max, int64_t *number);

/* A string: as the tree has it, and as a copy in the policy's pool. */
ngx_str_t ngx_ratelimit_read_text(const json_t *value);
ngx_str_t ngx_ratelimit_read_copy(ngx_ratelimit_reader_t *reader,
    const json_t *value);

/* "orders": the form of ids and names. 1, or 0 with the problem added. */
ngx_uint_t ngx_ratelimit_read_name(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const json_t *value);

/* A tier's name: the same. */
ngx_uint_t ngx_ratelimit_read_tier(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_str_t *tier);

/* The number of a text in a list that ends with NULL; -1: it is none. */
ngx_int_t ngx_ratelimit_read_one_of(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const json_t *value,
    const char *const *names);

/* A text or an array of texts: how many, and one of them. */
size_t ngx_ratelimit_read_count(const json_t *list);
json_t *ngx_ratelimit_read_item(json_t *list, size_t i,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_place_t *item);

/*
 * One API key (globs: 0), or a glob, too. NGX_OK, or NGX_DECLINED with the
 * problem added.
 */
ngx_int_t ngx_ratelimit_read_api_key(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, const ngx_str_t *text, ngx_uint_t globs,
    ngx_ratelimit_api_key_t *key);

/* Makes a string of the tree what is stored of a key. */
void ngx_ratelimit_read_store(ngx_ratelimit_reader_t *reader, json_t *value,
    const ngx_ratelimit_api_key_t *key);

/*
 * The same of an object whose members' names are keys, once all were read:
 * names are what is stored of them, in the order of the object.
 */
void ngx_ratelimit_read_rename(ngx_ratelimit_reader_t *reader, json_t *object,
    u_char (*names)[NGX_RATELIMIT_SHA256]);

/* A list of API keys and globs of them, to find one in. */
void ngx_ratelimit_read_keys(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *list, ngx_ratelimit_keys_t *keys);

/* Globs to find a text in; NULL where there are none. */
ngx_ratelimit_globs_t *ngx_ratelimit_read_globs(
    ngx_ratelimit_reader_t *reader, const ngx_ratelimit_glob_text_t *globs,
    size_t n);

/* A map for n entries: NGX_OK, or NGX_ERROR: memory is out. */
ngx_int_t ngx_ratelimit_read_map(ngx_ratelimit_reader_t *reader,
    ngx_ratelimit_map_t *map, size_t n);

/* The SHA-256 of a text. */
void ngx_ratelimit_read_sha256(const ngx_str_t *text,
    u_char sha256[NGX_RATELIMIT_SHA256]);


/*
 * rule_json.c: an amount, of a tier or an override. algorithm: of the rule, or
 * NULL where the rule is not known. NGX_OK, or NGX_DECLINED with the problems
 * added.
 */
ngx_int_t ngx_ratelimit_read_amount(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    const ngx_ratelimit_algorithm_e *algorithm,
    ngx_ratelimit_amount_t *amount);

/* One rule; its id is not entered anywhere yet */
void ngx_ratelimit_read_rule(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value,
    ngx_ratelimit_rule_t *rule);

/* tier_of_json.c: "tier_of" */
void ngx_ratelimit_read_tier_of(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *value, void *data);


/* override_json.c: "overrides", when all rules are known */
void ngx_ratelimit_read_overrides(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, json_t *list, void *data);

#endif /* NGX_RATELIMIT_READ_JSON_H_INCLUDED */
