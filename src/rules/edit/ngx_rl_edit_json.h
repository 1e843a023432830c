/*
 * The files of the editor share this header. A slot is a place in the document
 * that a request reads or writes. A row says where the slots of a resource are.
 */

#ifndef NGX_RL_EDIT_JSON_H_INCLUDED
#define NGX_RL_EDIT_JSON_H_INCLUDED

#include "ngx_rl_edit.h"
#include "ngx_rl_document.h"

#include <jansson.h>

typedef struct ngx_rl_edit_work_s  ngx_rl_edit_work_t;

typedef struct {
    json_t       *parent;      /* an array or an object */
    size_t        index;       /* in the array; its size: nothing is there */
    ngx_str_t     name;        /* in the object */
    json_t       *value;       /* NULL: nothing is there */
    json_t       *rule;        /* of a tier */
} ngx_rl_edit_slot_t;

typedef struct {
    const char   *parent;      /* NULL: the document has the collection */
    const char   *collection;  /* NULL: the resource is the whole document */
    const char   *id;          /* the member that names an element; or NULL */
    const char   *keys[3];     /* members whose names are keys; "rules": that
                                  has objects of them; NULL ends */

    /* Pushes the slots. */
    void        (*find)(ngx_rl_edit_work_t *work);

    /* The reply, a new reference. NULL: no memory, or missing is set. */
    json_t     *(*show)(ngx_rl_edit_work_t *work);
} ngx_rl_edit_row_t;

struct ngx_rl_edit_work_s {
    ngx_rl_edit_t            *edit;
    const ngx_rl_edit_row_t  *row;
    json_t                   *root;   /* the document; owned */
    json_t                   *body;   /* or NULL; owned */
    ngx_array_t               slots;
    ngx_uint_t                missing; /* there is nothing to show */
    int                       failed;  /* not 0: memory was out, and nothing is
                                          stored */
};

/*
 * Changes the slots. OK, CREATED or GONE is the status if the document is valid
 * then; NOT_FOUND; INVALID: there are problems.
 */
ngx_rl_edit_status_e ngx_rl_edit_method(ngx_rl_edit_work_t *work);

/* Removes the overrides and the entries of lists that have ended. */
void ngx_rl_edit_expire(ngx_rl_edit_work_t *work);

/* Makes "expires_at" of their durations. One that is none is left as it is. */
void ngx_rl_edit_durations(ngx_rl_edit_work_t *work);

/* By ngx_rl_edit_resource_e. */
extern const ngx_rl_edit_row_t  ngx_rl_edit_rows[];

/* Pushes a slot behind an array's elements, or at a name of an object. */
ngx_rl_edit_slot_t *ngx_rl_edit_slot(
    ngx_rl_edit_work_t *work, json_t *parent, const ngx_str_t *name,
    json_t *value);

/* A member that is an array or an object. It is made if it is not there. */
json_t *ngx_rl_edit_child(ngx_rl_edit_work_t *work, json_t *parent,
    const char *name, json_type type);

/*
 * A set of API keys: those that a string, an array of strings or the names of
 * an object are; and how they are written. A glob is a key of its own, except
 * as a name. A new reference.
 */
json_t *ngx_rl_edit_keys(ngx_rl_edit_work_t *work, const json_t *keys);
void ngx_rl_edit_keys_add(ngx_rl_edit_work_t *work, json_t *set,
    const ngx_str_t *key, ngx_uint_t globs);
json_t *ngx_rl_edit_keys_get(json_t *set, const ngx_str_t *key,
    ngx_uint_t globs);

/* The text of a string; of another value, and of NULL, an empty one. */
ngx_str_t ngx_rl_edit_text(const json_t *value);
ngx_uint_t ngx_rl_edit_is(const json_t *value, const ngx_str_t *text);

#endif /* NGX_RL_EDIT_JSON_H_INCLUDED */
