/*
 * Values with variables: of nginx.conf, and of a document.
 */

#ifndef NGX_RL_VALUE_H_INCLUDED
#define NGX_RL_VALUE_H_INCLUDED

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_rl_rule.h"

/* of a value in the error log: its bytes; and what they take at most */
#define NGX_RL_QUOTE        64
#define NGX_RL_QUOTE_BYTES                                                    \
    (6 * NGX_RL_QUOTE + sizeof("..."))


/* A piece of a value: a text, or a variable by its index or its name. */
typedef struct {
    ngx_str_t   text;       /* literal; a variable's name */
    ngx_int_t   index;      /* of the variable, or -1 */
    ngx_uint_t  hash;       /* of its name */
    ngx_uint_t  capture;    /* of "$1": 2, and so on; 0: none */
    unsigned    variable:1;
} ngx_rl_piece_t;


/* Where a key comes from: see key.h. */
typedef struct ngx_rl_source_s  ngx_rl_source_t;

/* A value with variables; one lone variable is read without a copy. */
typedef struct {
    ngx_str_t        text;        /* of nginx.conf, as written */
    ngx_int_t        index;       /* of the lone variable, or -1 */
    ngx_uint_t       npieces;
    ngx_rl_piece_t  *pieces;
    unsigned         api_key:1;   /* it is $ratelimit_api_key */

    /* of a lone "$http_name", "$arg_name" or "$cookie_name", or NULL */
    ngx_rl_source_t  *source;
} ngx_rl_value_t;


/* The values of a rule's parameters that have variables; a rule's data. */
typedef struct {
    ngx_rl_value_t   key;      /* where it has no parts */
    ngx_uint_t       nparts;   /* 0, or more than one */
    ngx_rl_value_t  *parts;
    ngx_rl_value_t  *limit;  /* "rate=" or "limit=", or NULL */
    ngx_rl_value_t  *cost;   /* NULL where constant */
    ngx_rl_value_t  *conditions;  /* of those of the rule; none of arguments */
    ngx_rl_value_t  *end;    /* "cost_end=", or NULL */
} ngx_rl_values_t;


/* A walk over a list of headers. */
typedef struct {
    ngx_list_part_t             *part;
    ngx_table_elt_t             *next;
    ngx_table_elt_t             *end;      /* of the part */
} ngx_rl_walk_t;


static ngx_inline void
ngx_rl_walk_part(ngx_rl_walk_t *walk, ngx_list_part_t *part)
{
    walk->part = part;
    walk->next = part->elts;
    walk->end = walk->next;

    /* a list that nobody has made has no elements */

    if (part->nelts) {
        walk->end += part->nelts;
    }
}


/* The next header with a name of so many bytes, or NULL. */
static ngx_inline ngx_table_elt_t *
ngx_rl_walk_next(ngx_rl_walk_t *walk, size_t len)
{
    ngx_table_elt_t  *h;

    for ( ;; ) {

        for (h = walk->next; h < walk->end; h++) {
            if (h->key.len == len && h->hash) {
                walk->next = h + 1;
                return h;
            }
        }

        if (walk->part->next == NULL) {
            return NULL;
        }

        ngx_rl_walk_part(walk, walk->part->next);
    }
}


/* calls inside the module then need no table of addresses */
#pragma GCC visibility push(hidden)

/*
 * Compiles a key of nginx.conf. NGX_ERROR: it is logged. It warns of one
 * without a variable, unless it is "all": all clients have one counter then.
 */
ngx_int_t ngx_rl_value_key_compile(ngx_conf_t *cf, const ngx_str_t *text,
    ngx_rl_value_t *value);

/* The same of any text, to memory of the pool; NULL: it is logged. */
ngx_rl_value_t *ngx_rl_value_new(ngx_conf_t *cf, const ngx_str_t *text);

/*
 * Called when nginx.conf is read: which of the variables that are sources are
 * made by another module.
 */
void ngx_rl_value_resolve(ngx_conf_t *cf, ngx_array_t *sources);

/*
 * Makes the values of a document's rule: what limiter->above has, of which data
 * is the zone. See ngx_rl_above_t.
 */
const char *ngx_rl_values(void *data, ngx_rl_rule_t *rule,
    const ngx_str_t *limit, const ngx_str_t *cost, ngx_pool_t *pool,
    ngx_uint_t *which);

/*
 * The same of those beside the key, to rule->data: of nginx.conf, where errors
 * are logged, or of a document, where cf is NULL.
 */
const char *ngx_rl_values_beside(ngx_conf_t *cf,
    ngx_http_core_main_conf_t *core, const ngx_rl_rule_t *rule,
    const ngx_str_t *limit, const ngx_str_t *cost, ngx_pool_t *pool,
    ngx_uint_t *which);

/*
 * Whether a request meets the conditions of a rule. Returns NGX_OK, NGX_ERROR:
 * memory is out, or NGX_DECLINED and the first one that it does not meet.
 */
ngx_int_t ngx_rl_conditions(ngx_http_request_t *r, const ngx_rl_rule_t *rule,
    const ngx_rl_condition_t **failed);

/* Reads the value at a request. NGX_ERROR: memory is out. */
ngx_int_t ngx_rl_value_get(ngx_http_request_t *r, ngx_rl_value_t *value,
    ngx_str_t *text);

/*
 * Marks before a key say how it is known, so that no key is that of another
 * kind: "jwt:", "basic:" and "token:" of $ratelimit_api_key; "address:" of what
 * stands in for the key of a client whose token is not valid. A key that begins
 * with a mark by itself gets "plain:".
 */
#define NGX_RL_MARK_JWT      "jwt:"
#define NGX_RL_MARK_BASIC    "basic:"
#define NGX_RL_MARK_TOKEN    "token:"
#define NGX_RL_MARK_ADDRESS  "address:"
#define NGX_RL_MARK_PLAIN    "plain:"

/*
 * Reads a value that has a source as APIs read it, so that no other spelling is
 * another value. NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_value_sourced(ngx_http_request_t *r, ngx_rl_value_t *value,
    ngx_str_t *text);

/* NGX_ERROR: memory is out. */
ngx_int_t ngx_rl_key_marked(ngx_http_request_t *r, const char *mark,
    ngx_str_t *key);

static ngx_inline ngx_uint_t
ngx_rl_key_begins(const ngx_str_t *key, const char *mark)
{
    size_t  len;

    len = ngx_strlen(mark);

    return key->len >= len && key->data[0] == (u_char) mark[0]
           && ngx_memcmp(key->data, mark, len) == 0;
}

/*
 * Reads the value as a key, or as a part of one: it is no address that stands
 * in. NGX_ERROR: memory is out.
 */
static ngx_inline ngx_int_t
ngx_rl_value_key(ngx_http_request_t *r, ngx_rl_value_t *value, ngx_str_t *key)
{
    ngx_int_t  rc;

    rc = value->source ? ngx_rl_value_sourced(r, value, key)
                       : ngx_rl_value_get(r, value, key);

    if (rc == NGX_OK
        && (ngx_rl_key_begins(key, NGX_RL_MARK_ADDRESS)
            || ngx_rl_key_begins(key, NGX_RL_MARK_PLAIN))
        && !value->api_key)
    {
        rc = ngx_rl_key_marked(r, NGX_RL_MARK_PLAIN, key);
    }

    return rc;
}

/*
 * A rule's key at a request. Parts of one are joined. Empty: all parts are.
 * Returns NGX_OK, or NGX_ERROR: memory is out.
 */
ngx_int_t ngx_rl_values_key(ngx_http_request_t *r, ngx_rl_values_t *values,
    ngx_str_t *key);

/*
 * A value for the error log, written to out, of NGX_RL_QUOTE_BYTES:
 * its beginning, with control characters and quotes as JSON writes them, so
 * that no client makes lines of its own there.
 */
ngx_str_t ngx_rl_value_quote(const ngx_str_t *text, u_char *out);

/*
 * The same of a value of a rule; of a document's rule its length alone: the
 * document may name a variable that holds a key.
 */
ngx_str_t ngx_rl_value_shown(const ngx_rl_rule_t *rule, const ngx_str_t *text,
    u_char *out);

#pragma GCC visibility pop

#endif /* NGX_RL_VALUE_H_INCLUDED */
