/*
 * What the files that edit a document share. Inside them only.
 */

#ifndef NGX_RATELIMIT_EDIT_JSON_H_INCLUDED
#define NGX_RATELIMIT_EDIT_JSON_H_INCLUDED

#include "ngx_ratelimit_edit.h"
#include "ngx_ratelimit_document_json.h"

typedef struct ngx_ratelimit_edit_work_s  ngx_ratelimit_edit_work_t;

/*
 * Where a place of the document is in the body: writes the pointer's new
 * beginning to place, and how many bytes of the old one that replaces. Returns
 * 1, or 0: it is not of the body.
 */
typedef ngx_uint_t (*ngx_ratelimit_edit_place_pt)(
    ngx_ratelimit_edit_work_t *work, const ngx_str_t *pointer,
    ngx_str_t *place, size_t *len);

struct ngx_ratelimit_edit_work_s {
    ngx_ratelimit_edit_t         *edit;
    struct json_t                *root;    /* the document, which is changed */
    struct json_t                *body;    /* NULL: there is none */
    ngx_str_t                     rule;    /* "?rule=": its id; or empty */
    ngx_str_t                     key;     /* "?key="; or empty */

    unsigned                      same:1;  /* nothing is changed */
    unsigned                      missing:1;  /* what is to be shown */
    unsigned                      deny_all:1; /* what the document does */
    unsigned                      outside:1;  /* problems are of the document */

    struct json_t                *names;   /* of members that are API keys:
                                              what the body calls them
                                              ("/sk_1"), by what they are now */
    size_t                        first;   /* of those that the body adds */
    size_t                       *numbers; /* theirs in the body; NULL: they
                                              are from 0 */
    ngx_ratelimit_edit_place_pt   place;   /* NULL: what edit->part says */
};

/*
 * Changes work->root. Returns OK, CREATED or GONE, which is the answer where
 * the document it makes is valid; NOT_FOUND; INVALID, when there are problems
 * that leave nothing to go on with; ERROR: memory is out.
 */
typedef ngx_ratelimit_edit_status_e (*ngx_ratelimit_edit_change_pt)(
    ngx_ratelimit_edit_work_t *work);

/*
 * What the answer shows, of the document as it is, or as it is when it was
 * changed and made canonical: a new reference. NULL: memory is out, or it is
 * not there: then missing is set.
 */
typedef struct json_t *(*ngx_ratelimit_edit_show_pt)(
    ngx_ratelimit_edit_work_t *work);


/* edit_places_json.c */

/* A problem at a place of the body; always returns INVALID. */
ngx_ratelimit_edit_status_e ngx_ratelimit_edit_problem(
    ngx_ratelimit_edit_work_t *work, const char *pointer, const char *detail);

/*
 * Problems of the document, from the first of those to translate, become
 * problems of the body. What is not of the body was in the document before, and
 * has become wrong by it.
 */
void ngx_ratelimit_edit_translate(ngx_ratelimit_edit_work_t *work,
    ngx_ratelimit_problems_t *problems, ngx_uint_t first);

/* Whether none of them, translated before, is at a place of the body. */
ngx_uint_t ngx_ratelimit_edit_all_outside(
    const ngx_ratelimit_problems_t *problems);

/* "<parent>/<name>" as RFC 6901 writes it. NGX_ERROR: memory is out. */
ngx_int_t ngx_ratelimit_edit_escape(ngx_ratelimit_edit_work_t *work,
    const char *parent, const ngx_str_t *name, ngx_str_t *pointer);

/* "/name" of a pointer at a place; empty: it ends there. */
ngx_str_t ngx_ratelimit_edit_segment(const ngx_str_t *pointer, size_t from);

/*
 * text = head and tail, which may be of text itself, and a zero byte behind it.
 * NGX_ERROR: memory is out.
 */
ngx_int_t ngx_ratelimit_edit_join(ngx_pool_t *pool, ngx_str_t *text,
    const ngx_str_t *head, const u_char *tail, size_t len);


/* edit_rules_json.c */
ngx_ratelimit_edit_status_e ngx_ratelimit_edit_rule_put(
    ngx_ratelimit_edit_work_t *work);
ngx_ratelimit_edit_status_e ngx_ratelimit_edit_rule_patch(
    ngx_ratelimit_edit_work_t *work);
ngx_ratelimit_edit_status_e ngx_ratelimit_edit_rule_delete(
    ngx_ratelimit_edit_work_t *work);
struct json_t *ngx_ratelimit_edit_rule_show(ngx_ratelimit_edit_work_t *work);

/*
 * The id of the path becomes that of a rule, of an override: another one in the
 * body is a problem. part: the body is this element of the document. NGX_OK, or
 * NGX_ERROR: memory is out.
 */
ngx_int_t ngx_ratelimit_edit_id(ngx_ratelimit_edit_work_t *work,
    struct json_t *value);
ngx_int_t ngx_ratelimit_edit_part(ngx_ratelimit_edit_work_t *work,
    const char *list, size_t number);

/* The value as RFC 7396 patches it: a new reference; NULL: memory is out. */
struct json_t *ngx_ratelimit_edit_merge(struct json_t *target,
    struct json_t *patch);

/* The rule of that id and its number; NULL: there is none. */
struct json_t *ngx_ratelimit_edit_rule(ngx_ratelimit_edit_work_t *work,
    const ngx_str_t *id, size_t *number);

/* Whether a value is this text. */
ngx_uint_t ngx_ratelimit_edit_is(const struct json_t *value,
    const ngx_str_t *text);

/* A member that is an array, or an object; made where it is not there. */
struct json_t *ngx_ratelimit_edit_array(struct json_t *object,
    const char *name);
struct json_t *ngx_ratelimit_edit_object(struct json_t *object,
    const char *name);

/*
 * An object with the same members, whose names are API keys and become what is
 * stored of them; of a key that target has, what it is called there. pointer:
 * of the object in the body. A new reference, or NULL: memory is out. Where two
 * of them are one key, that is a problem.
 */
struct json_t *ngx_ratelimit_edit_hashed(ngx_ratelimit_edit_work_t *work,
    struct json_t *object, struct json_t *target, const char *pointer);

/*
 * What is stored of an API key that is no glob, ended by a zero byte, in the
 * edit's pool. NULL: memory is out.
 */
const char *ngx_ratelimit_edit_stored(ngx_ratelimit_edit_work_t *work,
    const ngx_str_t *key);


/* edit_parts_json.c: tiers, and who has them */
ngx_ratelimit_edit_status_e ngx_ratelimit_edit_tier_put(
    ngx_ratelimit_edit_work_t *work);
ngx_ratelimit_edit_status_e ngx_ratelimit_edit_tier_delete(
    ngx_ratelimit_edit_work_t *work);
struct json_t *ngx_ratelimit_edit_tier_show(ngx_ratelimit_edit_work_t *work);

ngx_ratelimit_edit_status_e ngx_ratelimit_edit_tiers_of_patch(
    ngx_ratelimit_edit_work_t *work);
struct json_t *ngx_ratelimit_edit_tiers_of_show(
    ngx_ratelimit_edit_work_t *work);

ngx_ratelimit_edit_status_e ngx_ratelimit_edit_tier_of_put(
    ngx_ratelimit_edit_work_t *work);
ngx_ratelimit_edit_status_e ngx_ratelimit_edit_tier_of_delete(
    ngx_ratelimit_edit_work_t *work);
struct json_t *ngx_ratelimit_edit_tier_of_show(
    ngx_ratelimit_edit_work_t *work);


/* edit_lists_json.c: overrides, and the two lists of API keys */
ngx_ratelimit_edit_status_e ngx_ratelimit_edit_override_post(
    ngx_ratelimit_edit_work_t *work);
ngx_ratelimit_edit_status_e ngx_ratelimit_edit_override_put(
    ngx_ratelimit_edit_work_t *work);
ngx_ratelimit_edit_status_e ngx_ratelimit_edit_override_delete(
    ngx_ratelimit_edit_work_t *work);
struct json_t *ngx_ratelimit_edit_override_show(
    ngx_ratelimit_edit_work_t *work);
struct json_t *ngx_ratelimit_edit_override_posted(
    ngx_ratelimit_edit_work_t *work);
struct json_t *ngx_ratelimit_edit_overrides_show(
    ngx_ratelimit_edit_work_t *work);

/* Takes the overrides away that have ended. NGX_ERROR: memory is out. */
ngx_int_t ngx_ratelimit_edit_expire(ngx_ratelimit_edit_work_t *work);

ngx_ratelimit_edit_status_e ngx_ratelimit_edit_list_put(
    ngx_ratelimit_edit_work_t *work);
ngx_ratelimit_edit_status_e ngx_ratelimit_edit_list_post(
    ngx_ratelimit_edit_work_t *work);
ngx_ratelimit_edit_status_e ngx_ratelimit_edit_list_delete(
    ngx_ratelimit_edit_work_t *work);
struct json_t *ngx_ratelimit_edit_list_show(ngx_ratelimit_edit_work_t *work);

#endif /* NGX_RATELIMIT_EDIT_JSON_H_INCLUDED */
