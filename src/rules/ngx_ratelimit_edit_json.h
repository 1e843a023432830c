/*
 * What the files that edit a document share. Inside src/rules/ngx_ratelimit_edit*
 * only.
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
    ngx_str_t                     key;     /* "?key=", as it is stored */

    unsigned                      found:1; /* what is put was there before */
    unsigned                      same:1;  /* nothing is changed */

    ngx_str_t                     part;    /* "/rules/3": the body's place */
    struct json_t                *names;   /* of members that were keys in the
                                              clear: what the body calls them,
                                              by what they are now */
    ngx_uint_t                    first;   /* of what the body adds to a list */
    ngx_uint_t                   *numbers; /* their numbers in the body */
    ngx_uint_t                    nnumbers;
    ngx_ratelimit_edit_place_pt   place;   /* NULL: what part says */
};

/*
 * Changes work->root. Returns OK, CREATED or GONE, which is the answer where the
 * document it makes is valid; NOT_FOUND; INVALID, when there are problems that
 * leave nothing to go on with; ERROR: memory is out.
 */
typedef ngx_ratelimit_edit_status_e (*ngx_ratelimit_edit_change_pt)(
    ngx_ratelimit_edit_work_t *work);

/*
 * What the answer shows, of the document as it is, or as it is when it was
 * changed and made canonical: a new reference. NULL: it is not there, or memory
 * is out, which sets the status of the edit.
 */
typedef struct json_t *(*ngx_ratelimit_edit_show_pt)(
    ngx_ratelimit_edit_work_t *work);


/* edit_json.c */

/* A problem at a place of the body; always returns INVALID. */
ngx_ratelimit_edit_status_e ngx_ratelimit_edit_problem(
    ngx_ratelimit_edit_work_t *work, const char *pointer, const char *detail);

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
 * An object with the same members, whose names were API keys and are what is
 * stored of them. Their names in the body become work->names. pointer: of the
 * object in the body. A new reference, or NULL: memory is out. Where two of them
 * are one key, that is a problem.
 */
struct json_t *ngx_ratelimit_edit_hashed(ngx_ratelimit_edit_work_t *work,
    struct json_t *object, const char *pointer);


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
