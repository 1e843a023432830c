/*
 * Editing a document: one rule of it; and what the other parts are edited
 * with, too.
 */

#include "ngx_ratelimit_edit_json.h"

#include <jansson.h>

static json_t *ngx_ratelimit_edit_in_clear(ngx_ratelimit_edit_work_t *work,
    json_t *target);
static const char *ngx_ratelimit_edit_called(ngx_ratelimit_edit_work_t *work,
    json_t *target, json_t *clear, const ngx_str_t *key);
static ngx_int_t ngx_ratelimit_edit_rename(ngx_ratelimit_edit_work_t *work,
    json_t *hashed, const ngx_str_t *name, const char *key, json_t *value,
    const char *pointer);
static const char *ngx_ratelimit_edit_digest_of(
    ngx_ratelimit_edit_work_t *work, const ngx_str_t *key);


ngx_uint_t
ngx_ratelimit_edit_is(const json_t *value, const ngx_str_t *text)
{
    return json_is_string(value) && json_string_length(value) == text->len
           && ngx_memcmp(json_string_value(value), text->data, text->len) == 0;
}


json_t *
ngx_ratelimit_edit_array(json_t *object, const char *name)
{
    json_t  *array;

    array = json_object_get(object, name);

    if (!json_is_array(array)) {
        array = json_array();

        if (json_object_set_new(object, name, array) != 0) {
            return NULL;
        }
    }

    return array;
}


json_t *
ngx_ratelimit_edit_object(json_t *object, const char *name)
{
    json_t  *member;

    member = json_object_get(object, name);

    if (!json_is_object(member)) {
        member = json_object();

        if (json_object_set_new(object, name, member) != 0) {
            return NULL;
        }
    }

    return member;
}


/* It goes no deeper than the patch is. */
json_t *
ngx_ratelimit_edit_merge(json_t *target, json_t *patch)
{
    int          rc;
    json_t      *value, *merged, *result;
    const char  *name;

    if (!json_is_object(patch)) {
        return json_incref(patch);
    }

    result = json_is_object(target) ? json_copy(target) : json_object();
    if (result == NULL) {
        return NULL;
    }

    json_object_foreach(patch, name, value) {

        if (json_is_null(value)) {
            (void) json_object_del(result, name);
            continue;
        }

        merged = ngx_ratelimit_edit_merge(json_object_get(result, name),
                                          value);
        rc = json_object_set_new(result, name, merged);

        if (rc != 0) {
            json_decref(result);
            return NULL;
        }
    }

    return result;
}


json_t *
ngx_ratelimit_edit_hashed(ngx_ratelimit_edit_work_t *work, json_t *object,
    json_t *target, const char *pointer)
{
    json_t      *hashed, *value, *clear;
    ngx_str_t    text;
    const char  *name;

    hashed = json_object();
    clear = ngx_ratelimit_edit_in_clear(work, target);

    if (hashed == NULL || clear == NULL) {
        goto failed;
    }

    if (work->names == NULL) {
        work->names = json_object();
    }

    json_object_foreach(object, name, value) {
        text.data = (u_char *) name;
        text.len = ngx_strlen(name);

        if (ngx_ratelimit_edit_rename(work, hashed, &text,
                                      ngx_ratelimit_edit_called(work, target,
                                                                clear, &text),
                                      value, pointer)
            != NGX_OK)
        {
            goto failed;
        }
    }

    json_decref(clear);

    return hashed;

failed:

    json_decref(clear);
    json_decref(hashed);

    return NULL;
}


/* By their digests, the names that are none: keys in the clear. */
static json_t *
ngx_ratelimit_edit_in_clear(ngx_ratelimit_edit_work_t *work, json_t *target)
{
    json_t      *clear, *value;
    ngx_str_t    text;
    const char  *name, *digest;

    clear = json_object();

    json_object_foreach(target, name, value) {
        text.data = (u_char *) name;
        text.len = ngx_strlen(name);

        digest = ngx_ratelimit_edit_digest_of(work, &text);

        if (digest && ngx_strcmp(digest, name) == 0) {
            continue;
        }

        if (digest == NULL
            || json_object_set_new(clear, digest,
                                   json_stringn(name, text.len))
               != 0)
        {
            json_decref(clear);
            return NULL;
        }
    }

    return clear;
}


/* The name of a key, as target has it, or as it would be stored. */
static const char *
ngx_ratelimit_edit_called(ngx_ratelimit_edit_work_t *work, json_t *target,
    json_t *clear, const ngx_str_t *key)
{
    json_t      *name;
    const char  *digest;

    digest = ngx_ratelimit_edit_digest_of(work, key);

    if (digest == NULL || json_object_get(target, digest)) {
        return digest;
    }

    name = json_object_get(clear, digest);

    return name ? json_string_value(name)
                : ngx_ratelimit_edit_stored(work, key);
}


static ngx_int_t
ngx_ratelimit_edit_rename(ngx_ratelimit_edit_work_t *work, json_t *hashed,
    const ngx_str_t *name, const char *key, json_t *value, const char *pointer)
{
    ngx_str_t  place;

    if (key == NULL
        || ngx_ratelimit_edit_escape(work, pointer, name, &place) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (json_object_get(hashed, key)) {
        ngx_ratelimit_problem(&work->edit->problems, &place,
                              "is the same key as another one");
        return NGX_OK;
    }

    place.data += ngx_strlen(pointer);
    place.len -= ngx_strlen(pointer);

    if (json_object_set_new(work->names, key,
                            json_stringn((char *) place.data, place.len))
        != 0)
    {
        return NGX_ERROR;
    }

    return json_object_set(hashed, key, value) == 0 ? NGX_OK : NGX_ERROR;
}


const char *
ngx_ratelimit_edit_stored(ngx_ratelimit_edit_work_t *work,
    const ngx_str_t *key)
{
    ngx_str_t  text;

    if (!work->edit->clear) {
        return ngx_ratelimit_edit_digest_of(work, key);
    }

    if (ngx_ratelimit_edit_join(work->edit->pool, &text, key, NULL, 0)
        != NGX_OK)
    {
        return NULL;
    }

    return (char *) text.data;
}


static const char *
ngx_ratelimit_edit_digest_of(ngx_ratelimit_edit_work_t *work,
    const ngx_str_t *key)
{
    u_char     buf[NGX_RATELIMIT_DOCUMENT_KEY];
    ngx_str_t  text;

    text = ngx_ratelimit_document_key(key, buf);

    if (ngx_ratelimit_edit_join(work->edit->pool, &text, &text, NULL, 0)
        != NGX_OK)
    {
        return NULL;
    }

    return (char *) text.data;
}


json_t *
ngx_ratelimit_edit_rule(ngx_ratelimit_edit_work_t *work, const ngx_str_t *id,
    size_t *number)
{
    size_t   i;
    json_t  *rules, *rule;

    rules = json_object_get(work->root, "rules");

    json_array_foreach(rules, i, rule) {
        if (ngx_ratelimit_edit_is(json_object_get(rule, "id"), id)) {
            *number = i;
            return rule;
        }
    }

    return NULL;
}


ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_rule_put(ngx_ratelimit_edit_work_t *work)
{
    int      rc;
    size_t   number;
    json_t  *rules, *old;

    if (!json_is_object(work->body)) {
        return ngx_ratelimit_edit_problem(work, "", "must be an object");
    }

    rules = ngx_ratelimit_edit_array(work->root, "rules");

    if (rules == NULL || ngx_ratelimit_edit_id(work, work->body) != NGX_OK)
    {
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    old = ngx_ratelimit_edit_rule(work, &work->edit->name, &number);

    if (old) {
        rc = json_array_set(rules, number, work->body);

    } else {
        number = json_array_size(rules);
        rc = json_array_append(rules, work->body);
    }

    if (rc != 0 || ngx_ratelimit_edit_part(work, "/rules/", number) != NGX_OK) {
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    return old ? NGX_RATELIMIT_EDIT_OK : NGX_RATELIMIT_EDIT_CREATED;
}


ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_rule_patch(ngx_ratelimit_edit_work_t *work)
{
    size_t   number;
    json_t  *rule, *override, *merged;

    rule = ngx_ratelimit_edit_rule(work, &work->edit->name, &number);

    if (rule == NULL) {
        return NGX_RATELIMIT_EDIT_NOT_FOUND;
    }

    if (!json_is_object(work->body)) {
        return ngx_ratelimit_edit_problem(work, "", "must be an object");
    }

    override = json_object_get(work->body, "override");

    if (json_is_object(override)
        && json_object_set_new(work->body, "override",
                               ngx_ratelimit_edit_hashed(work, override,
                                            json_object_get(rule, "override"),
                                                         "/override"))
           != 0)
    {
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    merged = ngx_ratelimit_edit_merge(rule, work->body);

    if (merged == NULL) {
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    if (json_array_set_new(json_object_get(work->root, "rules"), number,
                           merged)
        != 0
        || ngx_ratelimit_edit_id(work, merged) != NGX_OK
        || ngx_ratelimit_edit_part(work, "/rules/", number) != NGX_OK)
    {
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    return NGX_RATELIMIT_EDIT_OK;
}


ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_rule_delete(ngx_ratelimit_edit_work_t *work)
{
    size_t  number;

    if (ngx_ratelimit_edit_rule(work, &work->edit->name, &number) == NULL) {
        return NGX_RATELIMIT_EDIT_NOT_FOUND;
    }

    (void) json_array_remove(json_object_get(work->root, "rules"), number);

    return NGX_RATELIMIT_EDIT_GONE;
}


json_t *
ngx_ratelimit_edit_rule_show(ngx_ratelimit_edit_work_t *work)
{
    size_t   number;
    json_t  *rule;

    rule = ngx_ratelimit_edit_rule(work, &work->edit->name, &number);
    work->missing = (rule == NULL);

    return json_incref(rule);
}


ngx_int_t
ngx_ratelimit_edit_id(ngx_ratelimit_edit_work_t *work, json_t *value)
{
    json_t     *id;
    ngx_str_t  *name, pointer;

    name = &work->edit->name;
    id = json_object_get(value, "id");

    if (ngx_ratelimit_edit_is(id, name)) {
        return NGX_OK;
    }

    if (id || json_object_get(work->body, "id")) {
        ngx_str_set(&pointer, "/id");
        ngx_ratelimit_problem(&work->edit->problems, &pointer,
                              "must be \"%V\", as the path has it", name);
    }

    id = json_stringn((char *) name->data, name->len);

    return json_object_set_new(value, "id", id) == 0 ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_ratelimit_edit_part(ngx_ratelimit_edit_work_t *work, const char *list,
    size_t number)
{
    u_char  *p;

    p = ngx_pnalloc(work->edit->pool, ngx_strlen(list) + NGX_SIZE_T_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    work->edit->part.data = p;
    work->edit->part.len = ngx_sprintf(p, "%s%uz", list, number) - p;

    return NGX_OK;
}
