/*
 * The methods of the editor: each is one function for all resources, and works
 * on the slots that the row has found.
 */

#include "ngx_rl_edit_json.h"

#include "ngx_rl_date.h"

#define NGX_RL_EDIT_POINTER   128   /* bytes of a place at most */
#define NGX_RL_EDIT_DURATION  (366 * 24 * 3600)   /* seconds at most */

#define NGX_RL_EDIT_TEMPORARY                                                 \
    (sizeof(ngx_rl_edit_temporary)                                            \
     / sizeof(ngx_rl_edit_temporary[0]))

/* what ends by itself: arrays of the document */
static const char  *ngx_rl_edit_temporary[] = {
    "overrides", "allow", "deny"
};


/*
 * A problem at the collection, at an element of it (slot), or at a member of
 * the element. Always returns INVALID.
 */
static ngx_rl_edit_status_e
ngx_rl_edit_wrong(ngx_rl_edit_work_t *work, const ngx_rl_edit_slot_t *slot,
    const char *member, const char *detail)
{
    u_char     *p, *last, text[NGX_RL_EDIT_POINTER];
    ngx_str_t   pointer;

    p = text;
    last = text + sizeof(text);

    if (work->row->parent) {
        p = ngx_slprintf(p, last, "/%s", work->row->parent);
    }

    p = ngx_slprintf(p, last, "/%s",
                     (work->row->parent && work->edit->rule.len)
                     ? "rules" : work->row->collection);

    if (slot && json_is_array(slot->parent)) {
        p = ngx_slprintf(p, last, "/%uz", slot->index);
    }

    if (member) {
        p = ngx_slprintf(p, last, "/%s", member);
    }

    pointer.data = text;
    pointer.len = p - text;

    ngx_rl_problem(&work->edit->problems, &pointer, "%s", detail);

    return NGX_RL_EDIT_INVALID;
}


static ngx_uint_t
ngx_rl_edit_ended(ngx_rl_edit_work_t *work, json_t *element)
{
    int64_t    expires;
    ngx_str_t  text;

    text = ngx_rl_edit_text(json_object_get(element, "expires_at"));

    return ngx_rl_date_parse(text.data, text.len, &expires) == 0
           && expires <= work->edit->now;
}


/*
 * A check that the reader cannot make: the id of a rule or an override must be
 * the path's. A POST without an id gets a random one.
 */
static void
ngx_rl_edit_element(ngx_rl_edit_work_t *work, ngx_rl_edit_slot_t *slot)
{
    u_char                 text[2 * sizeof(work->edit->random) + 1
                                + NGX_SIZE_T_LEN];
    json_t                *given;
    ngx_str_t              id;
    ngx_rl_edit_t  *edit;

    edit = work->edit;
    id = edit->name;
    given = json_object_get(slot->value, work->row->id);

    if (id.len ? ngx_rl_edit_is(given, &id) : given != NULL) {
        return;
    }

    if (given || json_object_get(work->body, work->row->id)) {
        (void) ngx_rl_edit_wrong(work, slot, work->row->id,
                                 "is not the one that the path has");
    }

    if (id.len == 0) {
        id.data = text;
        id.len = ngx_hex_dump(text, edit->random, sizeof(edit->random)) - text;

        if (work->slots.nelts > 1) {
            id.len = ngx_sprintf(text + id.len, "-%ui", work->slots.nelts)
                     - text;
        }
    }

    work->failed |= json_object_set_new(slot->value, work->row->id,
                                        json_stringn((char *) id.data, id.len));
}


/* slot: NULL if memory was out. */
static void
ngx_rl_edit_set(ngx_rl_edit_work_t *work, ngx_rl_edit_slot_t *slot,
    json_t *value)
{
    if (slot == NULL || value == NULL) {
        work->failed = 1;
        return;
    }

    if (json_is_object(slot->parent)) {
        work->failed |= json_object_setn(slot->parent, (char *) slot->name.data,
                                         slot->name.len, value);

    } else if (slot->index < json_array_size(slot->parent)) {
        work->failed |= json_array_set(slot->parent, slot->index, value);

    } else {
        work->failed |= json_array_append(slot->parent, value);
    }

    slot->value = value;

    if (work->row->keys[0] == NULL && ngx_rl_edit_ended(work, value)) {
        (void) ngx_rl_edit_wrong(work, slot, "expires_at", "is in the past");
    }

    if (work->row->id && json_is_object(value)) {
        ngx_rl_edit_element(work, slot);
    }
}


static ngx_rl_edit_status_e
ngx_rl_edit_put(ngx_rl_edit_work_t *work)
{
    json_t              *value;
    ngx_uint_t           i, found;
    ngx_rl_edit_t       *edit;
    ngx_rl_edit_slot_t  *slot;

    edit = work->edit;
    value = work->body;
    slot = work->slots.elts;
    found = 0;

    /* null would remove the collection */

    if (edit->name.len == 0 && !json_is_array(value)) {
        return ngx_rl_edit_wrong(work, NULL, NULL, "expected an array");
    }

    if (edit->resource == NGX_RL_EDIT_TIER_ASSIGNMENT) {
        value = json_object_get(value, "tier");

        if (value == NULL || json_object_size(work->body) != 1) {
            return ngx_rl_edit_wrong(work, NULL, NULL,
                                     "expected {\"tier\": \"<name>\"}");
        }
    }

    if (work->slots.nelts == 0 && edit->rule.len) {
        return NGX_RL_EDIT_NOT_FOUND;
    }

    if (work->slots.nelts == 0) {
        return ngx_rl_edit_wrong(work, NULL, NULL, "no rule here can "
                   "have a tier; rules of nginx.conf cannot be changed here; "
                   "define the rule in the document");
    }

    for (i = 0; i < work->slots.nelts; i++) {
        found |= (slot[i].value != NULL);
        ngx_rl_edit_set(work, &slot[i], value);
    }

    return (found || edit->name.len == 0) ? NGX_RL_EDIT_OK
                                          : NGX_RL_EDIT_CREATED;
}


/*
 * The place of an entry among names. NULL: it is not there, and has that place
 * from now on, unless it is SIZE_MAX.
 */
static json_t *
ngx_rl_edit_entry(ngx_rl_edit_work_t *work, json_t *names, const json_t *entry,
    size_t place)
{
    json_t     *at;
    ngx_str_t   name;

    if (ngx_rl_document_entry(entry, work->edit->pool, &name) != NGX_OK) {
        work->failed = 1;
        return NULL;
    }

    at = json_object_getn(names, (char *) name.data, name.len);

    if (at == NULL && place != SIZE_MAX) {
        work->failed |= json_object_setn_new_nocheck(names, (char *) name.data,
            name.len, json_integer((json_int_t) place));
    }

    return at;
}


/*
 * The names of a list's entries, with their places: of equal ones the first. A
 * new reference.
 */
static json_t *
ngx_rl_edit_entries(ngx_rl_edit_work_t *work, json_t *list)
{
    size_t   i;
    json_t  *names, *entry;

    names = json_object();

    json_array_foreach(list, i, entry) {
        (void) ngx_rl_edit_entry(work, names, entry, i);
    }

    return names;
}


/*
 * Appends the body, or its elements. An entry of a list takes the place of the
 * one that the list has of the same client. The slots are those of what is new.
 */
static ngx_rl_edit_status_e
ngx_rl_edit_post(ngx_rl_edit_work_t *work)
{
    size_t               i, n;
    json_t              *list, *there, *item, *at;
    ngx_str_t            name;
    ngx_rl_edit_slot_t  *slot;

    if (work->edit->name.len) {
        return NGX_RL_EDIT_NOT_FOUND;
    }

    list = ngx_rl_edit_child(work, work->root, work->row->collection,
                             JSON_ARRAY);
    there = ngx_rl_edit_entries(work, work->row->id ? NULL : list);
    work->slots.nelts = 0;

    n = json_is_array(work->body) ? json_array_size(work->body) : 1;

    for (i = 0; i < n && !work->failed; i++) {
        item = json_is_array(work->body) ? json_array_get(work->body, i)
                                         : work->body;
        ngx_str_null(&name);
        at = NULL;

        if (work->row->id == NULL) {
            at = ngx_rl_edit_entry(work, there, item, json_array_size(list));

            if (at && json_is_string(item)
                && json_is_string(json_array_get(list, json_integer_value(at))))
            {
                continue;
            }
        }

        slot = ngx_rl_edit_slot(work, list, &name, NULL);

        if (slot && at) {
            slot->index = json_integer_value(at);
        }

        ngx_rl_edit_set(work, slot, item);
    }

    json_decref(there);

    return (work->row->id && n) ? NGX_RL_EDIT_CREATED : NGX_RL_EDIT_OK;
}


/*
 * If a member of the patch is an object, whose names are keys, it gets the
 * names that the same member of target has for these keys. place: of problems.
 */
static void
ngx_rl_edit_patch_keys(ngx_rl_edit_work_t *work, const char *place,
    const json_t *target, json_t *patch, const char *member)
{
    json_t      *keys, *named, *there, *value;
    ngx_str_t    text;
    const char  *name;

    keys = json_object_get(patch, member);

    if (!json_is_object(keys)) {
        return;
    }

    named = json_object();
    there = ngx_rl_edit_keys(work, json_object_get(target, member));

    json_object_foreach(keys, name, value) {
        text.data = (u_char *) name;
        text.len = ngx_strlen(name);

        if (ngx_rl_edit_keys_get(there, &text, 0) == NULL) {
            ngx_rl_edit_keys_add(work, there, &text, 0);
        }

        text = ngx_rl_edit_text(ngx_rl_edit_keys_get(there, &text, 0));
        work->failed |= json_object_setn(named, (char *) text.data, text.len,
                                         value);
    }

    json_decref(there);

    if (json_object_size(named) < json_object_size(keys)) {
        (void) ngx_rl_edit_wrong(work, work->slots.elts, place,
                                 "has the same key twice");
    }

    /* the member is there already: a loop over the members may go on */

    work->failed |= json_object_set_new(patch, member, named);
}


/* A new reference; NULL: no memory. It goes no deeper than the patch is. */
static json_t *
ngx_rl_edit_merge(json_t *target, json_t *patch)
{
    json_t      *value, *merged, *result;
    const char  *name;

    if (!json_is_object(patch)) {
        return json_incref(patch);
    }

    /* json_copy() leaves members out if memory is */

    result = json_object();

    if (json_is_object(target) && json_object_update(result, target) != 0) {
        json_decref(result);
        return NULL;
    }

    json_object_foreach(patch, name, value) {

        if (json_is_null(value)) {
            (void) json_object_del(result, name);
            continue;
        }

        merged = ngx_rl_edit_merge(json_object_get(result, name), value);

        if (json_object_set_new(result, name, merged) != 0) {
            json_decref(result);
            return NULL;
        }
    }

    return result;
}


static ngx_rl_edit_status_e
ngx_rl_edit_patch(ngx_rl_edit_work_t *work)
{
    json_t              *merged, *rules, *rule;
    ngx_uint_t           i;
    const char          *id, *member;
    ngx_rl_edit_slot_t  *slot;

    slot = work->slots.elts;

    if (work->slots.nelts != 1 || (slot->value == NULL && work->edit->name.len))
    {
        return NGX_RL_EDIT_NOT_FOUND;
    }

    /* RFC 7396 lets null and all else replace the value */

    if (!json_is_object(work->body)) {
        return ngx_rl_edit_wrong(work, slot, NULL, "expected an object");
    }

    for (i = 0; work->row->keys[i]; i++) {
        member = work->row->keys[i];

        if (ngx_strcmp(member, "rules") != 0) {
            ngx_rl_edit_patch_keys(work, member, slot->value,
                                   work->body, member);
            continue;
        }

        rules = json_object_get(work->body, member);

        json_object_foreach(rules, id, rule) {
            ngx_rl_edit_patch_keys(work, member,
                                   json_object_get(slot->value, member),
                                   rules, id);
        }
    }

    merged = ngx_rl_edit_merge(slot->value, work->body);
    ngx_rl_edit_set(work, slot, merged);
    json_decref(merged);

    return NGX_RL_EDIT_OK;
}


/* An entry as "?key=" and "?rule=" name it. A new reference. */
static json_t *
ngx_rl_edit_of_query(ngx_rl_edit_work_t *work)
{
    json_t         *key;
    ngx_rl_edit_t  *edit;

    edit = work->edit;
    key = json_stringn_nocheck((char *) edit->key.data, edit->key.len);

    if (edit->rule.len) {
        key = json_pack("{s:o, s:o}", "key", key, "rule",
                        json_stringn_nocheck((char *) edit->rule.data,
                                             edit->rule.len));
    }

    work->failed |= (key == NULL);

    return key;
}


/* The key of the query, or those of an array: never all of them unnamed. */
static ngx_rl_edit_status_e
ngx_rl_edit_delete_entries(ngx_rl_edit_work_t *work)
{
    size_t   i, n;
    json_t  *list, *left, *named, *entry;

    if (work->body ? !json_is_array(work->body) : work->edit->key.len == 0) {
        return ngx_rl_edit_wrong(work, NULL, NULL, "expected \"?key=\", "
                                 "or an array of entries");
    }

    list = json_object_get(work->root, work->row->collection);
    n = json_array_size(list);
    named = ngx_rl_edit_entries(work, work->body);
    left = json_array();

    if (work->edit->key.len) {
        entry = ngx_rl_edit_of_query(work);
        (void) ngx_rl_edit_entry(work, named, entry, 0);
        json_decref(entry);
    }

    json_array_foreach(list, i, entry) {
        if (ngx_rl_edit_entry(work, named, entry, SIZE_MAX) == NULL) {
            work->failed |= json_array_append(left, entry);
        }
    }

    json_decref(named);

    if (json_array_size(left) == n) {
        json_decref(left);
        return NGX_RL_EDIT_NOT_FOUND;
    }

    work->failed |= json_object_set_new(work->root, work->row->collection,
                                        left);
    work->slots.nelts = 0;

    return NGX_RL_EDIT_GONE;
}


static ngx_rl_edit_status_e
ngx_rl_edit_delete(ngx_rl_edit_work_t *work)
{
    ngx_str_t            name;
    ngx_uint_t           i, found;
    ngx_rl_edit_slot_t  *slot;

    if (work->edit->name.len == 0) {
        return ngx_rl_edit_delete_entries(work);
    }

    slot = work->slots.elts;
    found = 0;

    for (i = 0; i < work->slots.nelts; i++) {
        name = slot[i].name;

        if (slot[i].value) {
            work->failed |= json_is_array(slot[i].parent)
                            ? json_array_remove(slot[i].parent, slot[i].index)
                            : json_object_deln(slot[i].parent,
                                               (char *) name.data, name.len);
            slot[i].value = NULL;
            found = 1;
        }
    }

    return found ? NGX_RL_EDIT_GONE : NGX_RL_EDIT_NOT_FOUND;
}


ngx_rl_edit_status_e
ngx_rl_edit_method(ngx_rl_edit_work_t *work)
{
    switch (work->edit->method) {

    case NGX_RL_EDIT_PUT:
        return ngx_rl_edit_put(work);

    case NGX_RL_EDIT_POST:
        return ngx_rl_edit_post(work);

    case NGX_RL_EDIT_PATCH:
        return ngx_rl_edit_patch(work);

    default: /* NGX_RL_EDIT_DELETE */
        return ngx_rl_edit_delete(work);
    }
}


void
ngx_rl_edit_expire(ngx_rl_edit_work_t *work)
{
    size_t       i;
    json_t      *list, *element, *left;
    ngx_uint_t   n;

    for (n = 0; n < NGX_RL_EDIT_TEMPORARY; n++) {
        list = json_object_get(work->root, ngx_rl_edit_temporary[n]);
        left = json_array();

        json_array_foreach(list, i, element) {
            if (!ngx_rl_edit_ended(work, element)) {
                work->failed |= json_array_append(left, element);
            }
        }

        if (json_array_size(left) < json_array_size(list)) {
            work->failed |= json_object_set(work->root,
                                            ngx_rl_edit_temporary[n], left);
        }

        json_decref(left);
    }
}


static void
ngx_rl_edit_duration(ngx_rl_edit_work_t *work, json_t *element)
{
    json_t     *duration;
    time_t      ends;
    ngx_str_t   text;
    ngx_int_t   seconds;
    struct tm   tm;

    duration = json_object_get(element, "duration");

    if (duration == NULL || json_is_null(duration)
        || json_is_string(json_object_get(element, "expires_at")))
    {
        return;
    }

    text = ngx_rl_edit_text(duration);
    seconds = json_is_integer(duration)
              ? (ngx_int_t) json_integer_value(duration)
              : text.len ? ngx_parse_time(&text, 1) : NGX_ERROR;

    if (seconds < 1 || seconds > NGX_RL_EDIT_DURATION) {
        return;
    }

    ends = work->edit->now + seconds;
    (void) gmtime_r(&ends, &tm);

    work->failed |= json_object_set_new(element, "expires_at",
        json_sprintf("%04d-%02d-%02dT%02d:%02d:%02dZ", tm.tm_year + 1900,
        tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec));
    work->failed |= json_object_del(element, "duration");
}


void
ngx_rl_edit_durations(ngx_rl_edit_work_t *work)
{
    size_t       i;
    json_t      *element;
    ngx_uint_t   n;

    for (n = 0; n < NGX_RL_EDIT_TEMPORARY; n++) {
        json_array_foreach(json_object_get(work->root,
                                           ngx_rl_edit_temporary[n]),
                           i, element)
        {
            ngx_rl_edit_duration(work, element);
        }
    }
}
