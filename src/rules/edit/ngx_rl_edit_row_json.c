/*
 * The resources of the editor: where each is in the document, and what a reply
 * shows of it.
 */

#include "ngx_rl_edit_json.h"


ngx_rl_edit_slot_t *
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


/* The collection as a whole. */
static void
ngx_rl_edit_find_member(ngx_rl_edit_work_t *work)
{
    ngx_str_t  name;

    name.data = (u_char *) work->row->collection;
    name.len = ngx_strlen(work->row->collection);

    (void) ngx_rl_edit_slot(work, work->root, &name,
                            json_object_get(work->root,
                                            work->row->collection));
}


json_t *
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


static json_t *
ngx_rl_edit_show_list(ngx_rl_edit_work_t *work)
{
    return json_incref(ngx_rl_edit_child(work, work->root,
                                         work->row->collection, JSON_ARRAY));
}


ngx_uint_t
ngx_rl_edit_is(const json_t *value, const ngx_str_t *text)
{
    return json_is_string(value) && json_string_length(value) == text->len
           && ngx_memcmp(json_string_value(value), text->data, text->len) == 0;
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


/* API keys are compared by their digests, globs as they are. */
static ngx_str_t
ngx_rl_edit_digest(const ngx_str_t *key, ngx_uint_t globs,
    u_char buf[NGX_RL_DOCUMENT_KEY])
{
    return (globs && ngx_rl_glob_wild(key->data, key->len))
           ? *key : ngx_rl_document_key(key, buf);
}


void
ngx_rl_edit_keys_add(ngx_rl_edit_work_t *work, json_t *set,
    const ngx_str_t *key, ngx_uint_t globs)
{
    u_char     buf[NGX_RL_DOCUMENT_KEY];
    ngx_str_t  name;

    name = ngx_rl_edit_digest(key, globs, buf);

    work->failed |= json_object_setn_new_nocheck(set, (char *) name.data,
        name.len, json_stringn_nocheck((char *) key->data, key->len));
}


json_t *
ngx_rl_edit_keys_get(json_t *set, const ngx_str_t *key, ngx_uint_t globs)
{
    u_char     buf[NGX_RL_DOCUMENT_KEY];
    ngx_str_t  name;

    name = ngx_rl_edit_digest(key, globs, buf);

    return json_object_getn(set, (char *) name.data, name.len);
}


/*
 * An API key in "keys", or a value of the key of the rule that the query names,
 * whether it stands there in the clear or as a digest.
 */
static void
ngx_rl_edit_find_key(ngx_rl_edit_work_t *work)
{
    u_char              *id;
    json_t              *keys, *set, *value;
    ngx_str_t            name;
    const char          *key;
    ngx_rl_edit_slot_t  *slot;

    keys = ngx_rl_edit_child(work, work->root, work->row->parent, JSON_OBJECT);

    if (work->edit->rule.len) {
        keys = ngx_rl_edit_child(work, keys, "rules", JSON_OBJECT);
        id = ngx_pnalloc(work->edit->pool, work->edit->rule.len + 1);

        if (id == NULL) {
            work->failed = 1;
            return;
        }

        *ngx_cpymem(id, work->edit->rule.data, work->edit->rule.len) = '\0';
        keys = ngx_rl_edit_child(work, keys, (char *) id, JSON_OBJECT);

    } else {
        keys = ngx_rl_edit_child(work, keys, work->row->collection,
                                 JSON_OBJECT);
    }

    slot = ngx_rl_edit_slot(work, keys, &work->edit->name, NULL);
    set = json_object();

    ngx_rl_edit_keys_add(work, set, &work->edit->name, 0);

    json_object_foreach(keys, key, value) {
        name.data = (u_char *) key;
        name.len = ngx_strlen(key);

        if (slot && ngx_rl_edit_keys_get(set, &name, 0)) {
            slot->name = name;
            slot->value = value;
        }
    }

    json_decref(set);
}


ngx_str_t
ngx_rl_edit_text(const json_t *value)
{
    ngx_str_t  text;

    text.data = (u_char *) (json_is_string(value) ? json_string_value(value)
                                                  : "");
    text.len = json_string_length(value);

    return text;
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
        glob = ngx_rl_edit_text(json_object_get(pattern, "pattern"));
        rule = ngx_rl_edit_text(json_object_get(pattern, "rule"));

        if (ngx_rl_equal(&rule, &work->edit->rule)
            && glob.len && ngx_rl_glob_match(glob.data, glob.len,
                                                 name->data, name->len))
        {
            work->missing = 0;
            return json_pack("{s:O, s:s}", "tier",
                             json_object_get(pattern, "tier"), "by",
                             "pattern");
        }
    }

    return NULL;
}


/* All overrides, or those of the rule or the key that the query names. */
static void
ngx_rl_edit_find_overrides(ngx_rl_edit_work_t *work)
{
    size_t          i;
    json_t         *overrides, *override, *set;
    ngx_str_t       key;
    ngx_rl_edit_t  *edit;

    edit = work->edit;
    overrides = json_object_get(work->root, "overrides");
    set = json_object();

    if (edit->key.len) {
        ngx_rl_edit_keys_add(work, set, &edit->key, 1);
    }

    json_array_foreach(overrides, i, override) {
        key = ngx_rl_edit_text(json_object_get(override, "key"));

        if ((edit->rule.len == 0
             || ngx_rl_edit_is(json_object_get(override, "rule"),
                               &edit->rule))
            && (edit->key.len == 0
                || ngx_rl_edit_keys_get(set, &key, 1)))
        {
            (void) ngx_rl_edit_slot(work, overrides, &edit->name, override);
        }
    }

    json_decref(set);
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
        id = ngx_rl_edit_text(json_object_get(slot->value, "id"));

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


const ngx_rl_edit_row_t  ngx_rl_edit_rows[] = {
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
    [NGX_RL_EDIT_TEMPORARY_LIMITS] = { NULL, "overrides", "id", { NULL },
        ngx_rl_edit_find_overrides, ngx_rl_edit_show_overrides },
    [NGX_RL_EDIT_TEMPORARY_LIMIT] = { NULL, "overrides", "id", { NULL },
        ngx_rl_edit_find_element, ngx_rl_edit_show_element },
    [NGX_RL_EDIT_ALLOW] = { NULL, "allow", NULL, { NULL },
        ngx_rl_edit_find_member, ngx_rl_edit_show_list },
    [NGX_RL_EDIT_DENY] = { NULL, "deny", NULL, { NULL },
        ngx_rl_edit_find_member, ngx_rl_edit_show_list }
};


json_t *
ngx_rl_edit_keys(ngx_rl_edit_work_t *work, const json_t *keys)
{
    size_t       i;
    json_t      *set, *value;
    ngx_str_t    text;
    const char  *name;

    set = json_object();

    json_array_foreach(keys, i, value) {
        text = ngx_rl_edit_text(value);
        ngx_rl_edit_keys_add(work, set, &text, 1);
    }

    json_object_foreach((json_t *) keys, name, value) {
        text.data = (u_char *) name;
        text.len = ngx_strlen(name);
        ngx_rl_edit_keys_add(work, set, &text, 0);
    }

    return set;
}
