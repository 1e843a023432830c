/*
 * The editor of documents. A resource is a row of a table, a slot is a place in
 * the document that a request reads or writes, and a method is one function for
 * all rows. The editor only moves JSON. The reader of documents then checks the
 * whole result, so no edit makes a document that is not valid.
 */

#include "ngx_rl_edit.h"

#include "ngx_rl_date.h"
#include "ngx_rl_record.h"

#include <jansson.h>

#define NGX_RL_EDIT_POINTER   128   /* bytes of a place at most */
#define NGX_RL_EDIT_DURATION  (366 * 24 * 3600)   /* seconds at most */
#define NGX_RL_EDIT_SETS      2     /* names above the arrays that are sets */

#define NGX_RL_EDIT_ENDING                                                 \
    (sizeof(ngx_rl_edit_ending) / sizeof(ngx_rl_edit_ending[0]))

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
    json_t                   *changes; /* of a dry run */
    ngx_array_t               slots;
    ngx_uint_t                missing; /* there is nothing to show */
    int                       failed;  /* not 0: memory was out, and nothing is
                                          stored */
};

/* the document before the first version */
static const ngx_str_t  ngx_rl_edit_empty =
    ngx_string("{\"version\":0,\"rules\":[]}\n");

/* what ends by itself: arrays of the document */
static const char  *ngx_rl_edit_ending[] = { "overrides", "allow", "deny" };


static ngx_uint_t
ngx_rl_edit_is(const json_t *value, const ngx_str_t *text)
{
    return json_is_string(value) && json_string_length(value) == text->len
           && ngx_memcmp(json_string_value(value), text->data, text->len) == 0;
}


static ngx_rl_edit_slot_t *
ngx_rl_edit_slot(ngx_rl_edit_work_t *work, json_t *parent,
    const ngx_str_t *name, json_t *value)
{
    ngx_rl_edit_slot_t  *slot;

    slot = ngx_array_push(&work->slots);

    if (slot == NULL) {
        work->failed = 1;
        return NULL;
    }

    slot->parent = parent;
    slot->index = json_array_size(parent);
    slot->name = *name;
    slot->value = value;
    slot->rule = NULL;

    return slot;
}


static json_t *
ngx_rl_edit_child(ngx_rl_edit_work_t *work, json_t *parent, const char *name,
    json_type type)
{
    json_t  *child;

    child = json_object_get(parent, name);

    if (child == NULL || json_typeof(child) != type) {
        child = (type == JSON_ARRAY) ? json_array() : json_object();
        work->failed |= json_object_set_new(parent, name, child);
    }

    return work->failed ? NULL : child;
}


/* API keys are compared by their digests, globs as they are. */
static ngx_str_t
ngx_rl_edit_stored(const ngx_str_t *key, u_char buf[NGX_RL_DOCUMENT_KEY])
{
    return ngx_rl_glob_wild(key->data, key->len)
           ? *key : ngx_rl_document_key(key, buf);
}


/* The collection as a whole. */
static void
ngx_rl_edit_find_member(ngx_rl_edit_work_t *work)
{
    ngx_str_t  name;

    name.data = (u_char *) work->row->collection;
    name.len = ngx_strlen(work->row->collection);

    (void) ngx_rl_edit_slot(work, work->root, &name,
                            json_object_get(work->root, work->row->collection));
}


static json_t *
ngx_rl_edit_show_list(ngx_rl_edit_work_t *work)
{
    return json_incref(ngx_rl_edit_child(work, work->root,
                                         work->row->collection, JSON_ARRAY));
}


/* An element of an array, by its id. */
static void
ngx_rl_edit_find_element(ngx_rl_edit_work_t *work)
{
    size_t               i;
    json_t              *array, *element;
    ngx_rl_edit_slot_t  *slot;

    array = ngx_rl_edit_child(work, work->root, work->row->collection,
                              JSON_ARRAY);
    slot = ngx_rl_edit_slot(work, array, &work->edit->name, NULL);

    if (slot == NULL) {
        return;
    }

    json_array_foreach(array, i, element) {
        if (ngx_rl_edit_is(json_object_get(element, work->row->id),
                           &work->edit->name))
        {
            slot->index = i;
            slot->value = element;
            return;
        }
    }
}


static json_t *
ngx_rl_edit_show_element(ngx_rl_edit_work_t *work)
{
    ngx_rl_edit_slot_t  *slot;

    slot = work->slots.elts;
    work->missing = (slot->value == NULL);

    return json_incref(slot->value);
}


/*
 * A tier of each rule, or of the rule that the query names. A PUT makes it in
 * the rules that have tiers; if no rule has any, in all that may have them.
 */
static void
ngx_rl_edit_find_tier(ngx_rl_edit_work_t *work)
{
    size_t               i;
    json_t              *rules, *rule, *tiers;
    ngx_str_t           *name, *id;
    ngx_uint_t           some, put;
    ngx_rl_edit_slot_t  *slot;

    name = &work->edit->name;
    id = &work->edit->rule;
    rules = json_object_get(work->root, "rules");
    put = (work->edit->method == NGX_RL_EDIT_PUT);
    some = !put;

    json_array_foreach(rules, i, rule) {
        some |= json_is_object(json_object_get(rule, "tiers"));
    }

    json_array_foreach(rules, i, rule) {
        tiers = json_object_get(rule, "tiers");

        if (id->len) {
            if (!ngx_rl_edit_is(json_object_get(rule, "id"), id)) {
                continue;
            }

        } else if (some ? !json_is_object(tiers)
                        : json_object_get(rule, "shards") != NULL)
        {
            continue;
        }

        if (put && json_is_object(rule)) {
            tiers = ngx_rl_edit_child(work, rule, "tiers", JSON_OBJECT);
        }

        slot = ngx_rl_edit_slot(work, tiers, name, json_object_getn(tiers,
            (char *) name->data, name->len));
        if (slot) {
            slot->rule = rule;
        }
    }
}


/* By the ids of the rules. */
static json_t *
ngx_rl_edit_show_tier(ngx_rl_edit_work_t *work)
{
    json_t              *shown, *id;
    ngx_uint_t           i;
    ngx_rl_edit_slot_t  *slot;

    slot = work->slots.elts;
    shown = json_object();

    for (i = 0; i < work->slots.nelts; i++) {
        id = json_object_get(slot[i].rule, "id");

        if (slot[i].value && json_is_string(id)) {
            work->failed |= json_object_set(shown, json_string_value(id),
                                            slot[i].value);
        }
    }

    if (json_object_size(shown) == 0) {
        work->missing = 1;
        json_decref(shown);
        return NULL;
    }

    return json_pack("{s:o}", "rules", shown);
}


static json_t *
ngx_rl_edit_show_tiers_of(ngx_rl_edit_work_t *work)
{
    json_t  *shown, *tier_of;

    tier_of = json_object_get(work->root, "tier_of");
    shown = json_object();

    if (json_is_object(tier_of)) {
        work->failed |= json_object_update(shown, tier_of);
    }

    (void) ngx_rl_edit_child(work, shown, "keys", JSON_OBJECT);
    (void) ngx_rl_edit_child(work, shown, "patterns", JSON_ARRAY);

    return shown;
}


/*
 * An API key in "keys", or a value of the key of the rule that the query names,
 * whether it stands there in the clear or as a digest.
 */
static void
ngx_rl_edit_find_key(ngx_rl_edit_work_t *work)
{
    u_char              *id, asked[NGX_RL_DOCUMENT_KEY];
    u_char               buf[NGX_RL_DOCUMENT_KEY];
    json_t              *keys, *value;
    ngx_str_t            key, name, stored;
    const char          *member;
    ngx_rl_edit_slot_t  *slot;

    keys = ngx_rl_edit_child(work, work->root, work->row->parent, JSON_OBJECT);
    member = work->row->collection;

    if (work->edit->rule.len) {
        keys = ngx_rl_edit_child(work, keys, "rules", JSON_OBJECT);
        id = ngx_pnalloc(work->edit->pool, work->edit->rule.len + 1);

        if (id == NULL) {
            work->failed = 1;
            return;
        }

        *ngx_cpymem(id, work->edit->rule.data, work->edit->rule.len) = '\0';
        member = (char *) id;
    }

    keys = ngx_rl_edit_child(work, keys, member, JSON_OBJECT);
    slot = ngx_rl_edit_slot(work, keys, &work->edit->name, NULL);
    key = ngx_rl_document_key(&work->edit->name, asked);

    json_object_foreach(keys, member, value) {
        name = ngx_rl_str((u_char *) member, ngx_strlen(member));
        stored = ngx_rl_document_key(&name, buf);

        if (slot && ngx_rl_equal(&stored, &key)) {
            slot->name = name;
            slot->value = value;
        }
    }
}


/*
 * The tier that applies: the key's own, or that of the first pattern. A digest
 * matches no pattern, because it may be of any key.
 */
static json_t *
ngx_rl_edit_show_tier_of(ngx_rl_edit_work_t *work)
{
    size_t               i;
    json_t              *patterns, *pattern;
    ngx_str_t           *name, glob, rule;
    ngx_rl_edit_slot_t  *slot;

    slot = work->slots.elts;
    name = &work->edit->name;

    if (slot->value) {
        return json_pack("{s:O, s:s}", "tier", slot->value, "by", "key");
    }

    work->missing = 1;

    if (name->len > sizeof("sha256:") - 1
        && ngx_strncmp(name->data, "sha256:", sizeof("sha256:") - 1) == 0)
    {
        return NULL;
    }

    patterns = json_object_get(json_object_get(work->root, "tier_of"),
                               "patterns");

    json_array_foreach(patterns, i, pattern) {
        glob = ngx_rl_document_text(json_object_get(pattern, "pattern"));
        rule = ngx_rl_document_text(json_object_get(pattern, "rule"));

        if (ngx_rl_equal(&rule, &work->edit->rule) && glob.len
            && ngx_rl_glob_match(glob.data, glob.len, name->data, name->len))
        {
            work->missing = 0;
            return json_pack("{s:O, s:s}", "tier",
                             json_object_get(pattern, "tier"), "by", "pattern");
        }
    }

    return NULL;
}


/* All overrides, or those of the rule or the key that the query names. */
static void
ngx_rl_edit_find_overrides(ngx_rl_edit_work_t *work)
{
    u_char          asked[NGX_RL_DOCUMENT_KEY], buf[NGX_RL_DOCUMENT_KEY];
    size_t          i;
    json_t         *overrides, *override;
    ngx_str_t       key, one;
    ngx_rl_edit_t  *edit;

    edit = work->edit;
    overrides = json_object_get(work->root, "overrides");
    key = ngx_rl_edit_stored(&edit->key, asked);

    json_array_foreach(overrides, i, override) {
        one = ngx_rl_document_text(json_object_get(override, "key"));
        one = ngx_rl_edit_stored(&one, buf);

        if ((edit->rule.len == 0
             || ngx_rl_edit_is(json_object_get(override, "rule"), &edit->rule))
            && (edit->key.len == 0 || ngx_rl_equal(&one, &key)))
        {
            (void) ngx_rl_edit_slot(work, overrides, &edit->name, override);
        }
    }
}


/* As they are stored. A POST of an object gets an object. */
static json_t *
ngx_rl_edit_show_overrides(ngx_rl_edit_work_t *work)
{
    json_t              *shown;
    ngx_str_t            id;
    ngx_uint_t           i;
    ngx_rl_edit_slot_t  *slot;

    slot = work->slots.elts;

    if (json_is_object(work->body)) {
        id = ngx_rl_document_text(json_object_get(slot->value, "id"));

        work->edit->made.data = ngx_pstrdup(work->edit->pool, &id);
        work->edit->made.len = work->edit->made.data ? id.len : 0;

        return json_incref(slot->value);
    }

    shown = json_array();

    for (i = 0; i < work->slots.nelts; i++) {
        work->failed |= json_array_append(shown, slot[i].value);
    }

    return shown;
}


static const ngx_rl_edit_row_t  ngx_rl_edit_rows[] = {
    [NGX_RL_EDIT_DOCUMENT] = { .collection = NULL },
    [NGX_RL_EDIT_VALIDATE] = { .collection = NULL },
    [NGX_RL_EDIT_RULES] = { NULL, "rules", NULL, { NULL },
        ngx_rl_edit_find_member, ngx_rl_edit_show_list },
    [NGX_RL_EDIT_RULE] = { NULL, "rules", "id",
        { "limits_by_api_key", "limits_by_key" },
        ngx_rl_edit_find_element, ngx_rl_edit_show_element },
    [NGX_RL_EDIT_TIER_LIMITS] = { NULL, "rules", NULL, { NULL },
        ngx_rl_edit_find_tier, ngx_rl_edit_show_tier },
    [NGX_RL_EDIT_TIER_ASSIGNMENTS] = { NULL, "tier_of", NULL,
        { "keys", "rules" },
        ngx_rl_edit_find_member, ngx_rl_edit_show_tiers_of },
    [NGX_RL_EDIT_TIER_ASSIGNMENT] = { "tier_of", "keys", NULL, { NULL },
        ngx_rl_edit_find_key, ngx_rl_edit_show_tier_of },
    [NGX_RL_EDIT_OVERRIDES] = { NULL, "overrides", "id", { NULL },
        ngx_rl_edit_find_overrides, ngx_rl_edit_show_overrides },
    [NGX_RL_EDIT_OVERRIDE] = { NULL, "overrides", "id", { NULL },
        ngx_rl_edit_find_element, ngx_rl_edit_show_element },
    [NGX_RL_EDIT_ALLOW] = { NULL, "allow", NULL, { NULL },
        ngx_rl_edit_find_member, ngx_rl_edit_show_list },
    [NGX_RL_EDIT_DENY] = { NULL, "deny", NULL, { NULL },
        ngx_rl_edit_find_member, ngx_rl_edit_show_list }
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

    pointer = ngx_rl_str(text, p - text);

    ngx_rl_problem(&work->edit->problems, NULL, &pointer, "%s", detail);

    return NGX_RL_EDIT_INVALID;
}


static ngx_uint_t
ngx_rl_edit_ended(ngx_rl_edit_work_t *work, json_t *element)
{
    int64_t    expires;
    ngx_str_t  text;

    text = ngx_rl_document_text(json_object_get(element, "expires_at"));

    return ngx_rl_date_parse(text.data, text.len, &expires) == 0
           && expires <= work->edit->now;
}


/*
 * slot: NULL if memory was out. The reader cannot check that the id of a rule
 * or an override is the path's. A POST without an id gets a random one.
 */
static void
ngx_rl_edit_set(ngx_rl_edit_work_t *work, ngx_rl_edit_slot_t *slot,
    json_t *value)
{
    u_char          text[2 * sizeof(work->edit->random) + 1 + NGX_SIZE_T_LEN];
    json_t         *given;
    ngx_str_t       id;
    const char     *name;
    ngx_rl_edit_t  *edit;

    if (slot == NULL || value == NULL) {
        work->failed = 1;
        return;
    }

    edit = work->edit;
    name = work->row->id;

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

    id = edit->name;
    given = name ? json_object_get(value, name) : NULL;

    if (name == NULL || !json_is_object(value)
        || (id.len ? ngx_rl_edit_is(given, &id) : given != NULL))
    {
        return;
    }

    if (given || json_object_get(work->body, name)) {
        (void) ngx_rl_edit_wrong(work, slot, name,
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

    work->failed |= json_object_set_new(value, name,
                                        json_stringn((char *) id.data, id.len));
}


/*
 * The rules of others as they stand, and the body's, which get the owner: where
 * the owner's first rule stood, else at the end. A new reference; NULL: memory
 * is out.
 */
static json_t *
ngx_rl_edit_owned(ngx_rl_edit_work_t *work, const json_t *there)
{
    size_t       i;
    json_t      *rules, *rule;
    ngx_str_t   *name;
    ngx_uint_t   placed;

    name = &work->edit->owner;
    rules = json_array();
    placed = 0;

    json_array_foreach(work->body, i, rule) {

        if (json_is_object(rule) && !json_object_get(rule, "owner")) {
            work->failed |= json_object_set_new(rule, "owner",
                json_stringn((char *) name->data, name->len));
        }

        if (!ngx_rl_edit_is(json_object_get(rule, "owner"), name)) {
            (void) ngx_rl_edit_wrong(work, NULL, NULL, "a rule of the body has "
                                     "another \"owner\" than the query");
        }
    }

    json_array_foreach(there, i, rule) {

        if (!ngx_rl_edit_is(json_object_get(rule, "owner"), name)) {
            work->failed |= json_array_append(rules, rule);

        } else if (!placed) {
            work->failed |= json_array_extend(rules, work->body);
            placed = 1;
        }
    }

    if (!placed) {
        work->failed |= json_array_extend(rules, work->body);
    }

    return rules;
}


static ngx_rl_edit_status_e
ngx_rl_edit_put(ngx_rl_edit_work_t *work)
{
    json_t              *value, *owned;
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

    owned = edit->owner.len ? ngx_rl_edit_owned(work, slot->value) : NULL;

    for (i = 0; i < work->slots.nelts; i++) {
        found |= (slot[i].value != NULL);
        ngx_rl_edit_set(work, &slot[i], owned ? owned : value);
    }

    json_decref(owned);

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
    u_char       buf[NGX_RL_DOCUMENT_KEY];
    json_t      *keys, *named, *there, *value, *known;
    ngx_str_t    text;
    const char  *name;

    keys = json_object_get(patch, member);

    if (!json_is_object(keys)) {
        return;
    }

    named = json_object();
    there = json_object();

    json_object_foreach(json_object_get(target, member), name, value) {
        text = ngx_rl_str((u_char *) name, ngx_strlen(name));
        text = ngx_rl_document_key(&text, buf);

        work->failed |= json_object_setn_new_nocheck(there, (char *) text.data,
                            text.len, json_string_nocheck(name));
    }

    json_object_foreach(keys, name, value) {
        text = ngx_rl_str((u_char *) name, ngx_strlen(name));
        text = ngx_rl_document_key(&text, buf);

        known = json_object_getn(there, (char *) text.data, text.len);

        if (known == NULL) {
            known = json_string_nocheck(name);
            work->failed |= json_object_setn_new_nocheck(there,
                                (char *) text.data, text.len, known);
        }

        work->failed |= json_object_set(named, json_string_value(known), value);
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


/* The key of the query, or those of an array: never all of them unnamed. */
static ngx_rl_edit_status_e
ngx_rl_edit_delete_entries(ngx_rl_edit_work_t *work)
{
    size_t          i, n;
    json_t         *list, *left, *named, *entry;
    ngx_rl_edit_t  *edit;

    edit = work->edit;

    if (work->body ? !json_is_array(work->body) : edit->key.len == 0) {
        return ngx_rl_edit_wrong(work, NULL, NULL, "expected \"?key=\", "
                                 "or an array of entries");
    }

    list = json_object_get(work->root, work->row->collection);
    n = json_array_size(list);
    named = ngx_rl_edit_entries(work, work->body);
    left = json_array();

    if (edit->key.len) {
        entry = json_stringn_nocheck((char *) edit->key.data, edit->key.len);

        if (edit->rule.len) {
            entry = json_pack("{s:o, s:o}", "key", entry, "rule",
                              json_stringn_nocheck((char *) edit->rule.data,
                                                   edit->rule.len));
        }

        work->failed |= (entry == NULL);
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


/* Removes the overrides and the entries of lists that have ended. */
static void
ngx_rl_edit_expire(ngx_rl_edit_work_t *work)
{
    size_t       i;
    json_t      *list, *element, *left;
    ngx_uint_t   n;

    for (n = 0; n < NGX_RL_EDIT_ENDING; n++) {
        list = json_object_get(work->root, ngx_rl_edit_ending[n]);
        left = json_array();

        json_array_foreach(list, i, element) {
            if (!ngx_rl_edit_ended(work, element)) {
                work->failed |= json_array_append(left, element);
            }
        }

        if (json_array_size(left) < json_array_size(list)) {
            work->failed |= json_object_set(work->root,
                                            ngx_rl_edit_ending[n], left);
        }

        json_decref(left);
    }
}


/* Makes "expires_at" of a duration. One that is none is left as it is. */
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

    text = ngx_rl_document_text(duration);
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


/*
 * The document with the number of its next version, which stands first. A
 * number in a body says nothing. Another type is left for the reader.
 */
static void
ngx_rl_edit_version(ngx_rl_edit_work_t *work, json_t *root)
{
    json_t      *given;
    json_int_t   next;

    given = json_object_get(root, "version");
    next = (json_int_t) work->edit->version + 1;

    if (!json_is_object(root) || (given && !json_is_number(given))) {
        work->root = json_incref(root);
        return;
    }

    work->root = json_pack("{s:I}", "version", next);
    work->failed |= json_object_update(work->root, root);
    work->failed |= json_object_set_new(work->root, "version",
                                        json_integer(next));
}


/* Reads the body and the base, and finds the slots. */
static ngx_rl_edit_status_e
ngx_rl_edit_open(ngx_rl_edit_work_t *work)
{
    json_t         *root;
    ngx_str_t       base;
    ngx_rl_edit_t  *edit;

    edit = work->edit;

    if (edit->method == NGX_RL_EDIT_DELETE ? edit->body.len
        && edit->name.len == 0 : edit->method != NGX_RL_EDIT_GET)
    {
        work->body = ngx_rl_document_parse(&edit->body, &edit->problems);
        if (work->body == NULL) {
            work->failed = (edit->problems.n == 0);
            return NGX_RL_EDIT_INVALID;
        }

        if (edit->resource == NGX_RL_EDIT_RULE
            || edit->resource == NGX_RL_EDIT_RULES)
        {
            work->failed |= ngx_rl_document_rename(work->body, 1);
        }
    }

    /* a document that cannot be read can be replaced */

    if (work->row->collection == NULL) {
        ngx_rl_edit_version(work, work->body);
        return work->body ? NGX_RL_EDIT_OK : NGX_RL_EDIT_NOT_FOUND;
    }

    base = edit->base.len ? edit->base : ngx_rl_edit_empty;
    root = ngx_rl_document_parse(&base, &edit->problems);

    if (root == NULL) {
        work->failed = (edit->problems.n == 0);
        return NGX_RL_EDIT_INVALID;
    }

    ngx_rl_edit_version(work, root);
    json_decref(root);

    ngx_rl_edit_expire(work);
    work->row->find(work);

    return NGX_RL_EDIT_OK;
}


/*
 * Follows the pointers of problems through the document, and adds the ids of
 * rules and overrides. Returns whether one of the problems is in what the edit
 * has set.
 */
static ngx_uint_t
ngx_rl_edit_places(ngx_rl_edit_work_t *work, ngx_rl_problems_t *problems)
{
    u_char              *p, *last, *name, *to;
    json_t              *node, *above;
    ngx_str_t            id;
    ngx_uint_t           i, n, touched;
    ngx_rl_problem_t    *problem;
    ngx_rl_edit_slot_t  *slot;

    slot = work->slots.elts;
    problem = problems->list.elts;
    touched = (problems->n > problems->list.nelts);

    for (n = 0; n < problems->list.nelts; n++, problem++) {
        node = work->root;
        p = problem->pointer.data;
        last = p + problem->pointer.len;

        name = ngx_pnalloc(work->edit->pool, problem->pointer.len + 1);
        if (name == NULL) {
            work->failed = 1;
            return 1;
        }

        while (p < last && node) {

            /* "~1" is "/", "~0" is "~" */

            for (p++, to = name; p < last && *p != '/'; p++) {
                *to++ = (*p != '~') ? *p : (*++p == '1') ? '/' : '~';
            }

            above = node;
            node = json_is_array(above)
                   ? json_array_get(above, ngx_atoi(name, to - name))
                   : json_object_getn(above, (char *) name, to - name);

            for (i = 0; i < work->slots.nelts; i++) {
                touched |= (node && slot[i].value == node);
            }

            id = ngx_rl_document_text(json_object_get(node, "id"));

            if (json_is_array(above) && problem->id.len == 0 && id.len) {
                problem->id.data = ngx_pstrdup(work->edit->pool, &id);
                problem->id.len = problem->id.data ? id.len : 0;
            }
        }
    }

    return touched;
}


static ngx_rl_edit_status_e
ngx_rl_edit_compile(ngx_rl_edit_work_t *work)
{
    size_t              i;
    json_t             *element;
    ngx_uint_t          n, rejects_all;
    ngx_rl_edit_t      *edit;
    ngx_rl_policy_t    *before;
    ngx_rl_problems_t   unused, next;

    static const ngx_str_t  whole = ngx_string("");

    edit = work->edit;
    rejects_all = 0;

    for (n = 0; n < NGX_RL_EDIT_ENDING; n++) {
        json_array_foreach(json_object_get(work->root,
                                           ngx_rl_edit_ending[n]),
                           i, element)
        {
            ngx_rl_edit_duration(work, element);
        }
    }

    edit->policy = ngx_rl_document_read(edit->limiter, work->root, edit->clear,
                                        &edit->problems, &edit->warnings,
                                        &rejects_all, NULL, edit->pool->log);

    /*
     * The problems may be older than the edit. A rule that does not go with
     * this gateway's nginx.conf must not keep anybody from changing another
     * one, or the lists.
     */

    if (!ngx_rl_edit_places(work, &edit->problems)
        && edit->problems.n && work->row->collection
        && ngx_rl_problems_init(&unused, edit->pool) == NGX_OK
        && ngx_rl_problems_init(&next, edit->pool) == NGX_OK)
    {
        before = ngx_rl_document_compile(edit->limiter, &edit->base, &unused,
                                         NULL, edit->pool->log);

        if (before) {
            edit->warnings.n = 0;
            edit->warnings.list.nelts = 0;

            edit->policy = ngx_rl_document_read(edit->limiter, work->root,
                                                edit->clear, &next,
                                                &edit->warnings, &rejects_all,
                                                &before->skipped,
                                                edit->pool->log);
            if (edit->policy) {
                edit->problems = next;
            }

            ngx_rl_policy_release(before);
        }
    }

    (void) ngx_rl_edit_places(work, &edit->warnings);

    if (edit->problems.n) {
        return NGX_RL_EDIT_INVALID;
    }

    if (edit->policy == NULL) {
        return NGX_RL_EDIT_ERROR;
    }

    if (rejects_all && !edit->force) {
        return NGX_RL_EDIT_REJECTS_ALL;
    }

    if (rejects_all) {
        ngx_rl_problem(&edit->warnings, NULL, &whole,
                       "would reject all requests");
    }

    return NGX_RL_EDIT_OK;
}


/*
 * The elements of an array by their ids; those without one by their JSON. A new
 * reference.
 */
static json_t *
ngx_rl_edit_named(ngx_rl_edit_work_t *work, const json_t *array)
{
    size_t      i;
    json_t     *names, *element;
    ngx_str_t   name;

    names = json_object();

    json_array_foreach(array, i, element) {
        name = ngx_rl_document_text(json_object_get(element, "id"));

        if (name.len == 0) {
            work->failed |= ngx_rl_document_write(element, work->edit->pool,
                                                  &name);
        }

        work->failed |= json_object_setn_nocheck(names, (char *) name.data,
                                                 name.len, element);
    }

    return names;
}


static json_t *
ngx_rl_edit_order(ngx_rl_edit_work_t *work, json_t *names)
{
    json_t      *order, *value;
    const char  *name;

    order = json_array();

    json_object_foreach(names, name, value) {
        work->failed |= json_array_append_new(order, json_string(name));
    }

    return order;
}


/*
 * Adds what differs to work->changes: of objects the innermost members. Arrays
 * of the document are sets of elements; if the sets are equal, their orders
 * differ. path: where both are; NULL: there is none, of one of both.
 */
static void
ngx_rl_edit_compare(ngx_rl_edit_work_t *work, json_t *path, json_t *before,
    json_t *after)
{
    json_t      *was, *is, *value, *below;
    ngx_uint_t   i, sets;
    const char  *name;

    sets = json_array_size(path) <= NGX_RL_EDIT_SETS
           && (json_is_array(before) || json_is_array(after));

    was = sets ? ngx_rl_edit_named(work, before) : json_incref(before);
    is = sets ? ngx_rl_edit_named(work, after) : json_incref(after);

    if (sets && json_equal(was, is)) {
        work->failed |= json_array_append_new(work->changes,
            json_pack("{s:O, s:o, s:o}", "path", path,
                      "before", ngx_rl_edit_order(work, was),
                      "after", ngx_rl_edit_order(work, is)));

    } else if (!json_is_object(was) || !json_is_object(is)) {
        work->failed |= json_array_append_new(work->changes,
            json_pack("{s:O, s:O*, s:O*}", "path", path, "before", was,
                      "after", is));

    } else {

        for (i = 0; i < 2; i++) {
            json_object_foreach(i ? is : was, name, value) {

                if (json_equal(json_object_get(was, name),
                               json_object_get(is, name))
                    || (i && json_object_get(was, name)))
                {
                    continue;
                }

                below = json_array();
                work->failed |= json_array_extend(below, path);

                if (!sets || json_object_get(value, "id")) {
                    work->failed |= json_array_append_new(below,
                                                          json_string(name));
                }

                ngx_rl_edit_compare(work, below, json_object_get(was, name),
                                    json_object_get(is, name));
                json_decref(below);
            }
        }
    }

    json_decref(was);
    json_decref(is);
}


static void
ngx_rl_edit_show_changes(ngx_rl_edit_work_t *work, json_t *base)
{
    json_t  *path, *shown;

    path = json_array();
    work->changes = json_array();

    if (!json_equal(base, work->root)) {
        ngx_rl_edit_compare(work, path, base, work->root);
    }

    shown = json_pack("{s:I, s:O}", "version", (json_int_t) work->edit->version,
                      "changes", work->changes);
    work->failed |= ngx_rl_document_write(shown, work->edit->pool,
                                          &work->edit->reply);
    json_decref(shown);
    json_decref(work->changes);
    json_decref(path);
}


/* Makes the next document, and sets edit->document unless it is the same. */
static ngx_rl_edit_status_e
ngx_rl_edit_change(ngx_rl_edit_work_t *work)
{
    json_t                *base;
    ngx_str_t              text;
    ngx_uint_t             same;
    ngx_rl_edit_t         *edit;
    ngx_rl_problems_t      unused;
    ngx_rl_edit_status_e   status, rc;

    edit = work->edit;

    if (work->row->collection == NULL) {
        status = edit->version ? NGX_RL_EDIT_OK : NGX_RL_EDIT_CREATED;

    } else {
        status = (edit->method == NGX_RL_EDIT_PUT) ? ngx_rl_edit_put(work)
                 : (edit->method == NGX_RL_EDIT_POST) ? ngx_rl_edit_post(work)
                 : (edit->method == NGX_RL_EDIT_PATCH) ? ngx_rl_edit_patch(work)
                 : ngx_rl_edit_delete(work);
    }

    if (status > NGX_RL_EDIT_GONE || work->failed) {
        (void) ngx_rl_edit_places(work, &edit->problems);
        return status;
    }

    rc = ngx_rl_edit_compile(work);

    if (rc != NGX_RL_EDIT_OK) {
        return rc;
    }

    ngx_rl_edit_expire(work);

    /*
     * The version may be all that is new. So a tool that sends the same rules
     * each minute does not push everything else out of the history. The first
     * version is always new, and a base that cannot be read is replaced by any
     * document.
     */

    if (edit->base.len || edit->dry_run) {
        text = edit->base.len ? edit->base : ngx_rl_edit_empty;

        work->failed |= ngx_rl_problems_init(&unused, edit->pool);
        base = work->failed ? NULL : ngx_rl_document_parse(&text, &unused);

        work->failed |= (base == NULL && unused.n == 0);
        work->failed |= json_is_object(base)
                        && json_object_set(base, "version",
                                json_object_get(work->root, "version")) != 0;

        same = edit->base.len && json_equal(base, work->root);

        if (edit->dry_run) {
            ngx_rl_edit_show_changes(work, base);
        }

        json_decref(base);

        if (same || work->failed) {
            return status;
        }
    }

    work->failed |= ngx_rl_document_write(work->root, edit->pool,
                                          &edit->document);

    if (edit->document.len > NGX_RL_DOCUMENT_MAX) {
        status = NGX_RL_EDIT_TOO_LARGE;
    }

    if (status == NGX_RL_EDIT_TOO_LARGE
        || edit->resource == NGX_RL_EDIT_VALIDATE || edit->dry_run)
    {
        ngx_str_null(&edit->document);
    }

    return status;
}


/* A document that cannot be read can be shown. */
static ngx_rl_edit_status_e
ngx_rl_edit_run(ngx_rl_edit_work_t *work)
{
    json_t                *shown;
    ngx_rl_edit_t         *edit;
    ngx_rl_edit_status_e   status;

    edit = work->edit;
    status = NGX_RL_EDIT_OK;

    if (work->row->collection || edit->method != NGX_RL_EDIT_GET) {
        status = ngx_rl_edit_open(work);
    }

    if (status == NGX_RL_EDIT_OK && edit->method != NGX_RL_EDIT_GET) {
        status = ngx_rl_edit_change(work);
    }

    if (status >= NGX_RL_EDIT_GONE || work->failed
        || (edit->dry_run && edit->method != NGX_RL_EDIT_GET))
    {
        return status;
    }

    if (edit->resource == NGX_RL_EDIT_DOCUMENT) {
        edit->reply = edit->document.len ? edit->document
                      : edit->base.len ? edit->base : ngx_rl_edit_empty;
    }

    if (work->row->collection == NULL) {
        return status;
    }

    shown = work->row->show(work);

    if (shown == NULL) {
        work->failed |= !work->missing;
        return NGX_RL_EDIT_NOT_FOUND;
    }

    work->failed |= ngx_rl_document_write(shown, edit->pool, &edit->reply);
    json_decref(shown);

    return status;
}


void
ngx_rl_edit(ngx_rl_edit_t *edit)
{
    ngx_rl_edit_work_t  work;

    ngx_memzero(&work, sizeof(ngx_rl_edit_work_t));

    work.edit = edit;
    work.row = &ngx_rl_edit_rows[edit->resource];

    edit->status = NGX_RL_EDIT_ERROR;
    ngx_str_null(&edit->reply);
    ngx_str_null(&edit->made);
    ngx_str_null(&edit->document);
    edit->policy = NULL;

    if (ngx_rl_problems_init(&edit->problems, edit->pool) != NGX_OK
        || ngx_rl_problems_init(&edit->warnings, edit->pool) != NGX_OK
        || ngx_array_init(&work.slots, edit->pool, 1,
                          sizeof(ngx_rl_edit_slot_t))
           != NGX_OK)
    {
        return;
    }

    edit->status = ngx_rl_edit_run(&work);

    if (work.failed) {
        edit->status = NGX_RL_EDIT_ERROR;
        ngx_str_null(&edit->document);
    }

    if (edit->policy && edit->status > NGX_RL_EDIT_GONE) {
        ngx_rl_policy_release(edit->policy);
        edit->policy = NULL;
    }

    json_decref(work.root);
    json_decref(work.body);
}


ngx_uint_t
ngx_rl_edit_invalid(const ngx_rl_edit_t *edit)
{
    ngx_uint_t               i;
    const ngx_rl_problem_t  *problem;

    if (edit->resource != NGX_RL_EDIT_RULE) {
        return edit->problems.n
               && (edit->resource == NGX_RL_EDIT_RULES
                   || ngx_rl_edit_rows[edit->resource].collection
                      == NULL);
    }

    problem = edit->problems.list.elts;

    for (i = 0; i < edit->problems.list.nelts; i++) {
        if (problem[i].id.len == edit->name.len
            && ngx_memcmp(problem[i].id.data, edit->name.data, edit->name.len)
               == 0)
        {
            return 1;
        }
    }

    return edit->problems.n > edit->problems.list.nelts;
}
