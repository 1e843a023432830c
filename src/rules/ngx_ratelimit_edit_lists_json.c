/*
 * Editing a document: its temporary overrides, and the lists of API keys that
 * are always allowed and always denied.
 */

#include "ngx_ratelimit_edit_json.h"

#include <jansson.h>

static json_t *ngx_ratelimit_edit_ids(json_t *overrides);
static ngx_int_t ngx_ratelimit_edit_override_add(
    ngx_ratelimit_edit_work_t *work, json_t *overrides, json_t *ids,
    size_t number, json_t *override);
static ngx_int_t ngx_ratelimit_edit_override_wrong(
    ngx_ratelimit_edit_work_t *work, size_t number, const char *member,
    const char *detail);
static json_t *ngx_ratelimit_edit_with_id(ngx_ratelimit_edit_work_t *work,
    size_t number, json_t *override);
static ngx_int_t ngx_ratelimit_edit_pointer(ngx_ratelimit_edit_work_t *work,
    ngx_uint_t listed, size_t number, const char *member, ngx_str_t *pointer);
static ngx_uint_t ngx_ratelimit_edit_list_place(
    ngx_ratelimit_edit_work_t *work, const ngx_str_t *pointer,
    ngx_str_t *place, size_t *len);
static json_t *ngx_ratelimit_edit_override(ngx_ratelimit_edit_work_t *work,
    size_t *number);
static ngx_uint_t ngx_ratelimit_edit_ended(ngx_ratelimit_edit_work_t *work,
    json_t *override);
static const char *ngx_ratelimit_edit_list(
    const ngx_ratelimit_edit_work_t *work);
static ngx_int_t ngx_ratelimit_edit_list_add(ngx_ratelimit_edit_work_t *work,
    json_t *list, json_t *there, size_t number, json_t *entry);
static json_t *ngx_ratelimit_edit_entries(ngx_ratelimit_edit_work_t *work);
static ngx_int_t ngx_ratelimit_edit_entry(ngx_ratelimit_edit_work_t *work,
    json_t *set, const ngx_str_t *text);
static ngx_uint_t ngx_ratelimit_edit_is_entry(json_t *set,
    const json_t *entry);
static ngx_str_t ngx_ratelimit_edit_named(const ngx_str_t *entry,
    u_char buf[NGX_RATELIMIT_DOCUMENT_KEY]);
static ngx_str_t ngx_ratelimit_edit_text(const json_t *value);


/* One override, or an array of them. */
ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_override_post(ngx_ratelimit_edit_work_t *work)
{
    size_t      i;
    json_t     *overrides, *ids, *override;
    ngx_int_t   rc;

    if (!json_is_object(work->body) && !json_is_array(work->body)) {
        return ngx_ratelimit_edit_problem(work, "", "must be an object, or an "
                                                    "array of objects");
    }

    overrides = ngx_ratelimit_edit_array(work->root, "overrides");
    ids = ngx_ratelimit_edit_ids(overrides);

    if (ids == NULL) {
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    work->first = json_array_size(overrides);
    work->place = ngx_ratelimit_edit_list_place;
    ngx_str_set(&work->edit->part, "/overrides");

    rc = NGX_OK;

    if (json_is_object(work->body)) {
        rc = ngx_ratelimit_edit_override_add(work, overrides, ids, 0,
                                             work->body);
    }

    json_array_foreach(work->body, i, override) {
        if (rc == NGX_OK) {
            rc = ngx_ratelimit_edit_override_add(work, overrides, ids, i,
                                                 override);
        }
    }

    json_decref(ids);

    work->same = (json_array_size(overrides) == work->first);

    return (rc == NGX_OK) ? NGX_RATELIMIT_EDIT_CREATED
                          : NGX_RATELIMIT_EDIT_ERROR;
}


/* The set of the ids that are taken. NULL: memory is out. */
static json_t *
ngx_ratelimit_edit_ids(json_t *overrides)
{
    size_t   i;
    json_t  *ids, *override, *id;

    if (overrides == NULL) {
        return NULL;
    }

    ids = json_object();

    json_array_foreach(overrides, i, override) {
        id = json_object_get(override, "id");

        if (json_is_string(id)
            && json_object_set_new(ids, json_string_value(id), json_null())
               != 0)
        {
            json_decref(ids);
            return NULL;
        }
    }

    return ids;
}


static ngx_int_t
ngx_ratelimit_edit_override_add(ngx_ratelimit_edit_work_t *work,
    json_t *overrides, json_t *ids, size_t number, json_t *override)
{
    json_t  *id;

    /* it would not be there when the answer says that it is */

    if (ngx_ratelimit_edit_ended(work, override)
        && ngx_ratelimit_edit_override_wrong(work, number, "/expires_at",
                                             "is in the past")
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    id = json_object_get(override, "id");

    if (json_is_string(id)) {

        if (json_object_get(ids, json_string_value(id))) {

            if (ngx_ratelimit_edit_override_wrong(work, number, "/id",
                                                  "is taken")
                != NGX_OK)
            {
                return NGX_ERROR;
            }

            /* what else is wrong is found without it */

            override = ngx_ratelimit_edit_with_id(work, number, override);

            return json_array_append_new(overrides, override) == 0
                   ? NGX_OK : NGX_ERROR;
        }

    } else if (id == NULL && json_is_object(override)) {
        override = ngx_ratelimit_edit_with_id(work, number, override);

        return json_array_append_new(overrides, override) == 0 ? NGX_OK
                                                               : NGX_ERROR;
    }

    return json_array_append(overrides, override) == 0 ? NGX_OK : NGX_ERROR;
}


/* A member of one that the body has. */
static ngx_int_t
ngx_ratelimit_edit_override_wrong(ngx_ratelimit_edit_work_t *work,
    size_t number, const char *member, const char *detail)
{
    ngx_str_t  pointer;

    if (ngx_ratelimit_edit_pointer(work, json_is_array(work->body), number,
                                   member, &pointer)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_ratelimit_problem(&work->edit->problems, &pointer, "%s", detail);

    return NGX_OK;
}


/* A copy that begins with an id of its own; NULL: memory is out. */
static json_t *
ngx_ratelimit_edit_with_id(ngx_ratelimit_edit_work_t *work, size_t number,
    json_t *override)
{
    int      rc;
    u_char   text[2 * sizeof(work->edit->random) + 1 + NGX_SIZE_T_LEN], *last;
    json_t  *id, *copy;

    last = ngx_hex_dump(text, work->edit->random, sizeof(work->edit->random));

    if (number) {
        last = ngx_sprintf(last, "-%uz", number);
    }

    id = json_stringn((char *) text, last - text);
    copy = json_object();

    rc = (id == NULL
          || json_object_set(copy, "id", id) != 0
          || json_object_update(copy, override) != 0
          || json_object_set(copy, "id", id) != 0);

    json_decref(id);

    if (rc) {
        json_decref(copy);
        return NULL;
    }

    return copy;
}


/* "/7/id" where the body is a list, else "/id" */
static ngx_int_t
ngx_ratelimit_edit_pointer(ngx_ratelimit_edit_work_t *work,
    ngx_uint_t listed, size_t number, const char *member, ngx_str_t *pointer)
{
    u_char  *p;

    p = ngx_pnalloc(work->edit->pool,
                    1 + NGX_SIZE_T_LEN + ngx_strlen(member));
    if (p == NULL) {
        return NGX_ERROR;
    }

    pointer->data = p;

    if (listed) {
        p = ngx_sprintf(p, "/%uz", number);
    }

    p = ngx_cpymem(p, member, ngx_strlen(member));
    pointer->len = p - pointer->data;

    return NGX_OK;
}


/* "/overrides/107/value" is "/7/value", or "/value" where the body is one. */
static ngx_uint_t
ngx_ratelimit_edit_list_place(ngx_ratelimit_edit_work_t *work,
    const ngx_str_t *pointer, ngx_str_t *place, size_t *len)
{
    size_t      number;
    ngx_int_t   n;
    ngx_str_t   name, segment;

    name = ngx_ratelimit_edit_segment(pointer, 0);
    segment = ngx_ratelimit_edit_segment(pointer, name.len);

    if (name.len != work->edit->part.len
        || ngx_memcmp(name.data, work->edit->part.data, name.len) != 0
        || segment.len < 2)
    {
        return 0;
    }

    n = ngx_atoi(segment.data + 1, segment.len - 1);

    if (n == NGX_ERROR || (size_t) n < work->first) {
        return 0;
    }

    number = (size_t) n - work->first;

    if (work->numbers) {
        number = work->numbers[number];
    }

    *len = name.len + segment.len;

    return ngx_ratelimit_edit_pointer(work, json_is_array(work->body), number,
                                      "", place)
           == NGX_OK;
}


/* One, by the id that the client gives it. */
ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_override_put(ngx_ratelimit_edit_work_t *work)
{
    int      rc;
    size_t   number;
    json_t  *overrides, *old;

    if (!json_is_object(work->body)) {
        return ngx_ratelimit_edit_problem(work, "", "must be an object");
    }

    overrides = ngx_ratelimit_edit_array(work->root, "overrides");

    if (overrides == NULL
        || ngx_ratelimit_edit_id(work, work->body) != NGX_OK
        || (ngx_ratelimit_edit_ended(work, work->body)
            && ngx_ratelimit_edit_override_wrong(work, 0, "/expires_at",
                                                 "is in the past")
               != NGX_OK))
    {
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    old = ngx_ratelimit_edit_override(work, &number);

    if (old) {
        rc = json_array_set(overrides, number, work->body);

    } else {
        number = json_array_size(overrides);
        rc = json_array_append(overrides, work->body);
    }

    if (rc != 0
        || ngx_ratelimit_edit_part(work, "/overrides/", number) != NGX_OK)
    {
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    return old ? NGX_RATELIMIT_EDIT_OK : NGX_RATELIMIT_EDIT_CREATED;
}


ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_override_delete(ngx_ratelimit_edit_work_t *work)
{
    size_t  number;

    if (ngx_ratelimit_edit_override(work, &number) == NULL) {
        return NGX_RATELIMIT_EDIT_NOT_FOUND;
    }

    return json_array_remove(json_object_get(work->root, "overrides"), number)
           == 0 ? NGX_RATELIMIT_EDIT_GONE : NGX_RATELIMIT_EDIT_ERROR;
}


static json_t *
ngx_ratelimit_edit_override(ngx_ratelimit_edit_work_t *work, size_t *number)
{
    size_t   i;
    json_t  *overrides, *override;

    overrides = json_object_get(work->root, "overrides");

    json_array_foreach(overrides, i, override) {
        if (ngx_ratelimit_edit_is(json_object_get(override, "id"),
                                  &work->edit->name))
        {
            *number = i;
            return override;
        }
    }

    return NULL;
}


json_t *
ngx_ratelimit_edit_override_show(ngx_ratelimit_edit_work_t *work)
{
    size_t   number;
    json_t  *override;

    override = ngx_ratelimit_edit_override(work, &number);
    work->missing = (override == NULL);

    return json_incref(override);
}


/* As they are stored: an object for an object, else an array. */
json_t *
ngx_ratelimit_edit_override_posted(ngx_ratelimit_edit_work_t *work)
{
    size_t      i;
    json_t     *overrides, *shown;
    ngx_str_t   id;

    overrides = json_object_get(work->root, "overrides");

    if (json_is_object(work->body)) {
        shown = json_array_get(overrides, work->first);
        id = ngx_ratelimit_edit_text(json_object_get(shown, "id"));

        if (ngx_ratelimit_edit_join(work->edit->pool, &work->edit->made, &id,
                                    NULL, 0)
            != NGX_OK)
        {
            return NULL;
        }

        return json_incref(shown);
    }

    shown = json_array();

    for (i = work->first; i < json_array_size(overrides); i++) {
        if (json_array_append(shown, json_array_get(overrides, i)) != 0) {
            json_decref(shown);
            return NULL;
        }
    }

    return shown;
}


/* All, or those of a rule, of a key. */
json_t *
ngx_ratelimit_edit_overrides_show(ngx_ratelimit_edit_work_t *work)
{
    size_t   i;
    json_t  *overrides, *override, *shown, *set;

    overrides = json_object_get(work->root, "overrides");
    shown = json_array();
    set = json_object();

    if (work->key.len
        && ngx_ratelimit_edit_entry(work, set, &work->key) != NGX_OK)
    {
        goto failed;
    }

    json_array_foreach(overrides, i, override) {

        if ((work->rule.len
             && !ngx_ratelimit_edit_is(json_object_get(override, "rule"),
                                       &work->rule))
            || (work->key.len
                && !ngx_ratelimit_edit_is_entry(set,
                                           json_object_get(override, "key"))))
        {
            continue;
        }

        if (json_array_append(shown, override) != 0) {
            goto failed;
        }
    }

    json_decref(set);

    return shown;

failed:

    json_decref(set);
    json_decref(shown);

    return NULL;
}


ngx_int_t
ngx_ratelimit_edit_expire(ngx_ratelimit_edit_work_t *work)
{
    size_t   i;
    json_t  *overrides, *override, *left;

    overrides = json_object_get(work->root, "overrides");

    json_array_foreach(overrides, i, override) {
        if (ngx_ratelimit_edit_ended(work, override)) {
            break;
        }
    }

    if (i == json_array_size(overrides)) {
        return NGX_OK;
    }

    left = json_array();

    json_array_foreach(overrides, i, override) {

        if (!ngx_ratelimit_edit_ended(work, override)
            && json_array_append(left, override) != 0)
        {
            json_decref(left);
            return NGX_ERROR;
        }
    }

    return json_object_set_new(work->root, "overrides", left) == 0 ? NGX_OK
                                                                   : NGX_ERROR;
}


static ngx_uint_t
ngx_ratelimit_edit_ended(ngx_ratelimit_edit_work_t *work, json_t *override)
{
    time_t      expires;
    json_t     *value;
    ngx_str_t   text;

    value = json_object_get(override, "expires_at");

    if (!json_is_string(value)) {
        return 0;
    }

    text = ngx_ratelimit_edit_text(value);

    return ngx_ratelimit_document_time(&text, &expires) == NGX_OK
           && expires <= work->edit->now;
}


static const char *
ngx_ratelimit_edit_list(const ngx_ratelimit_edit_work_t *work)
{
    return (work->edit->resource == NGX_RATELIMIT_EDIT_WHITELIST)
           ? "whitelist" : "blacklist";
}


ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_list_put(ngx_ratelimit_edit_work_t *work)
{
    if (!json_is_array(work->body)) {
        return ngx_ratelimit_edit_problem(work, "", "must be an array");
    }

    if (json_object_set(work->root, ngx_ratelimit_edit_list(work), work->body)
        != 0)
    {
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    ngx_str_set(&work->edit->part, "/whitelist");

    if (work->edit->resource == NGX_RATELIMIT_EDIT_BLACKLIST) {
        ngx_str_set(&work->edit->part, "/blacklist");
    }

    return NGX_RATELIMIT_EDIT_OK;
}


/* Adds what is not there yet. */
ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_list_post(ngx_ratelimit_edit_work_t *work)
{
    size_t      i;
    json_t     *list, *there, *entry;
    ngx_int_t   rc;

    if (!json_is_array(work->body) && !json_is_string(work->body)) {
        return ngx_ratelimit_edit_problem(work, "", "must be a text, or an "
                                                    "array of texts");
    }

    list = ngx_ratelimit_edit_array(work->root, ngx_ratelimit_edit_list(work));
    there = ngx_ratelimit_edit_entries(work);
    work->numbers = ngx_palloc(work->edit->pool,
                               sizeof(size_t)
                               * (json_array_size(work->body) + 1));

    if (list == NULL || there == NULL || work->numbers == NULL) {
        json_decref(there);
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    work->first = json_array_size(list);
    work->place = ngx_ratelimit_edit_list_place;
    ngx_str_set(&work->edit->part, "/whitelist");

    if (work->edit->resource == NGX_RATELIMIT_EDIT_BLACKLIST) {
        ngx_str_set(&work->edit->part, "/blacklist");
    }

    rc = NGX_OK;

    if (json_is_string(work->body)) {
        rc = ngx_ratelimit_edit_list_add(work, list, there, 0, work->body);
    }

    json_array_foreach(work->body, i, entry) {
        if (rc == NGX_OK) {
            rc = ngx_ratelimit_edit_list_add(work, list, there, i, entry);
        }
    }

    json_decref(there);

    work->same = (json_array_size(list) == work->first);

    return (rc == NGX_OK) ? NGX_RATELIMIT_EDIT_OK : NGX_RATELIMIT_EDIT_ERROR;
}


static ngx_int_t
ngx_ratelimit_edit_list_add(ngx_ratelimit_edit_work_t *work, json_t *list,
    json_t *there, size_t number, json_t *entry)
{
    ngx_str_t  text;

    if (json_is_string(entry)) {

        if (ngx_ratelimit_edit_is_entry(there, entry)) {
            return NGX_OK;
        }

        text = ngx_ratelimit_edit_text(entry);

        if (ngx_ratelimit_edit_entry(work, there, &text) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    work->numbers[json_array_size(list) - work->first] = number;

    return json_array_append(list, entry) == 0 ? NGX_OK : NGX_ERROR;
}


/* One entry ("?key="), or those of an array: never all of them unnamed. */
ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_list_delete(ngx_ratelimit_edit_work_t *work)
{
    size_t      i;
    json_t     *list, *left, *set, *entry;
    ngx_int_t   rc;
    ngx_str_t   text;

    if (work->body ? !json_is_array(work->body) : work->key.len == 0) {
        return ngx_ratelimit_edit_problem(work, "", "expected \"?key=\", or "
                                                    "an array of entries");
    }

    list = json_object_get(work->root, ngx_ratelimit_edit_list(work));
    set = json_object();
    left = json_array();

    rc = (set && left) ? NGX_OK : NGX_ERROR;

    if (rc == NGX_OK && work->key.len) {
        rc = ngx_ratelimit_edit_entry(work, set, &work->key);
    }

    json_array_foreach(work->body, i, entry) {
        if (rc == NGX_OK && json_is_string(entry)) {
            text = ngx_ratelimit_edit_text(entry);
            rc = ngx_ratelimit_edit_entry(work, set, &text);
        }
    }

    json_array_foreach(list, i, entry) {
        if (rc == NGX_OK && !ngx_ratelimit_edit_is_entry(set, entry)
            && json_array_append(left, entry) != 0)
        {
            rc = NGX_ERROR;
        }
    }

    json_decref(set);

    if (rc != NGX_OK || json_array_size(left) == json_array_size(list)) {
        json_decref(left);
        return (rc == NGX_OK) ? NGX_RATELIMIT_EDIT_NOT_FOUND
                              : NGX_RATELIMIT_EDIT_ERROR;
    }

    return json_object_set_new(work->root, ngx_ratelimit_edit_list(work), left)
           == 0 ? NGX_RATELIMIT_EDIT_GONE : NGX_RATELIMIT_EDIT_ERROR;
}


json_t *
ngx_ratelimit_edit_list_show(ngx_ratelimit_edit_work_t *work)
{
    json_t  *list;

    list = json_object_get(work->root, ngx_ratelimit_edit_list(work));

    return list ? json_incref(list) : json_array();
}


/* The set of what the list has. NULL: memory is out. */
static json_t *
ngx_ratelimit_edit_entries(ngx_ratelimit_edit_work_t *work)
{
    size_t      i;
    json_t     *list, *set, *entry;
    ngx_str_t   text;

    list = json_object_get(work->root, ngx_ratelimit_edit_list(work));
    set = json_object();

    if (set == NULL) {
        return NULL;
    }

    json_array_foreach(list, i, entry) {
        text = ngx_ratelimit_edit_text(entry);

        if (ngx_ratelimit_edit_entry(work, set, &text) != NGX_OK) {
            json_decref(set);
            return NULL;
        }
    }

    return set;
}


/* Puts an entry into a set: a glob as it is, a key as its digest. */
static ngx_int_t
ngx_ratelimit_edit_entry(ngx_ratelimit_edit_work_t *work, json_t *set,
    const ngx_str_t *text)
{
    u_char     buf[NGX_RATELIMIT_DOCUMENT_KEY];
    ngx_str_t  name;

    name = ngx_ratelimit_edit_named(text, buf);

    if (ngx_ratelimit_edit_join(work->edit->pool, &name, &name, NULL, 0)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* a glob that is not UTF-8 is no entry: it is looked for in vain */

    return json_object_set_new_nocheck(set, (char *) name.data, json_null())
           == 0 ? NGX_OK : NGX_ERROR;
}


static ngx_uint_t
ngx_ratelimit_edit_is_entry(json_t *set, const json_t *entry)
{
    u_char     buf[NGX_RATELIMIT_DOCUMENT_KEY];
    char       name[NGX_RATELIMIT_DOCUMENT_KEY + 1];
    ngx_str_t  text, named;

    if (!json_is_string(entry)) {
        return 0;
    }

    text = ngx_ratelimit_edit_text(entry);
    named = ngx_ratelimit_edit_named(&text, buf);

    if (named.data != buf) {
        return json_object_get(set, json_string_value(entry)) != NULL;
    }

    (void) ngx_cpystrn((u_char *) name, named.data, named.len + 1);

    return json_object_get(set, name) != NULL;
}


static ngx_str_t
ngx_ratelimit_edit_named(const ngx_str_t *entry,
    u_char buf[NGX_RATELIMIT_DOCUMENT_KEY])
{
    if (ngx_ratelimit_glob_wild(entry->data, entry->len)) {
        return *entry;
    }

    return ngx_ratelimit_document_key(entry, buf);
}


static ngx_str_t
ngx_ratelimit_edit_text(const json_t *value)
{
    ngx_str_t  text;

    text.data = (u_char *) json_string_value(value);
    text.len = json_string_length(value);

    return text;
}
