/*
 * Editing a document: the tiers of its rules, and who has which tier.
 */

#include "ngx_ratelimit_edit_json.h"

#include <jansson.h>

static ngx_int_t ngx_ratelimit_edit_tier_set(ngx_ratelimit_edit_work_t *work,
    json_t *rule, ngx_uint_t *found);
static ngx_uint_t ngx_ratelimit_edit_tier_may(
    ngx_ratelimit_edit_work_t *work, json_t *rule, ngx_uint_t some);
static ngx_uint_t ngx_ratelimit_edit_tiers(json_t *rules);
static ngx_uint_t ngx_ratelimit_edit_tier_place(
    ngx_ratelimit_edit_work_t *work, const ngx_str_t *pointer,
    ngx_str_t *place, size_t *len);
static const char *ngx_ratelimit_edit_key(ngx_ratelimit_edit_work_t *work,
    json_t *keys);
static ngx_uint_t ngx_ratelimit_edit_digest(const ngx_str_t *key);
static json_t *ngx_ratelimit_edit_pattern(ngx_ratelimit_edit_work_t *work,
    json_t *patterns);
static ngx_uint_t ngx_ratelimit_edit_tier_of_place(
    ngx_ratelimit_edit_work_t *work, const ngx_str_t *pointer,
    ngx_str_t *place, size_t *len);


/*
 * In the rules that have tiers; where no rule has, in all that may have. One
 * rule alone where the query names it.
 */
ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_tier_put(ngx_ratelimit_edit_work_t *work)
{
    size_t       i, number;
    json_t      *rules, *rule;
    ngx_uint_t   some, n, found;

    if (!json_is_object(work->body)) {
        return ngx_ratelimit_edit_problem(work, "", "must be an object");
    }

    if (work->rule.len
        && ngx_ratelimit_edit_rule(work, &work->rule, &number) == NULL)
    {
        return NGX_RATELIMIT_EDIT_NOT_FOUND;
    }

    rules = json_object_get(work->root, "rules");
    some = ngx_ratelimit_edit_tiers(rules);
    found = 0;
    n = 0;

    json_array_foreach(rules, i, rule) {

        if (!ngx_ratelimit_edit_tier_may(work, rule, some)) {
            continue;
        }

        if (ngx_ratelimit_edit_tier_set(work, rule, &found) != NGX_OK) {
            return NGX_RATELIMIT_EDIT_ERROR;
        }

        n++;
    }

    if (n == 0) {
        return ngx_ratelimit_edit_problem(work, "", "there is no rule that "
                                                    "can have a tier");
    }

    work->place = ngx_ratelimit_edit_tier_place;

    return found ? NGX_RATELIMIT_EDIT_OK : NGX_RATELIMIT_EDIT_CREATED;
}


static ngx_uint_t
ngx_ratelimit_edit_tier_may(ngx_ratelimit_edit_work_t *work, json_t *rule,
    ngx_uint_t some)
{
    if (work->rule.len) {
        return ngx_ratelimit_edit_is(json_object_get(rule, "id"), &work->rule);
    }

    if (some) {
        return json_is_object(json_object_get(rule, "tiers"));
    }

    return json_is_object(rule) && !json_object_get(rule, "shards");
}


static ngx_uint_t
ngx_ratelimit_edit_tiers(json_t *rules)
{
    size_t   i;
    json_t  *rule;

    json_array_foreach(rules, i, rule) {
        if (json_is_object(json_object_get(rule, "tiers"))) {
            return 1;
        }
    }

    return 0;
}


static ngx_int_t
ngx_ratelimit_edit_tier_set(ngx_ratelimit_edit_work_t *work, json_t *rule,
    ngx_uint_t *found)
{
    json_t      *tiers;
    const char  *tier;

    tier = (char *) work->edit->name.data;
    tiers = ngx_ratelimit_edit_object(rule, "tiers");

    if (tiers == NULL) {
        return NGX_ERROR;
    }

    if (json_object_get(tiers, tier)) {
        *found = 1;
    }

    return json_object_set_new(tiers, tier, json_deep_copy(work->body)) == 0
           ? NGX_OK : NGX_ERROR;
}


/* "/rules/3/tiers/pro/limit" is "/limit". */
static ngx_uint_t
ngx_ratelimit_edit_tier_place(ngx_ratelimit_edit_work_t *work,
    const ngx_str_t *pointer, ngx_str_t *place, size_t *len)
{
    size_t      n, number;
    ngx_str_t   tier, tiers, name;

    n = ngx_ratelimit_edit_segment(pointer, 0).len;
    number = ngx_ratelimit_edit_segment(pointer, n).len;
    tiers = ngx_ratelimit_edit_segment(pointer, n + number);
    tier = ngx_ratelimit_edit_segment(pointer, n + number + tiers.len);

    if (ngx_strncmp(pointer->data, "/rules/", sizeof("/rules/") - 1) != 0
        || tiers.len != sizeof("/tiers") - 1
        || ngx_strncmp(tiers.data, "/tiers", tiers.len) != 0
        || ngx_ratelimit_edit_escape(work, "", &work->edit->name, &name)
           != NGX_OK
        || tier.len != name.len
        || ngx_memcmp(tier.data, name.data, name.len) != 0)
    {
        return 0;
    }

    ngx_str_set(place, "");
    *len = n + number + tiers.len + tier.len;

    return 1;
}


/* What had tiers goes on having them, if none: the next PUT finds it so. */
ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_tier_delete(ngx_ratelimit_edit_work_t *work)
{
    size_t       i;
    json_t      *rules, *rule;
    ngx_uint_t   found;

    rules = json_object_get(work->root, "rules");
    found = 0;

    json_array_foreach(rules, i, rule) {

        if (work->rule.len
            && !ngx_ratelimit_edit_is(json_object_get(rule, "id"),
                                      &work->rule))
        {
            continue;
        }

        if (json_object_del(json_object_get(rule, "tiers"),
                            (char *) work->edit->name.data)
            == 0)
        {
            found = 1;
        }
    }

    return found ? NGX_RATELIMIT_EDIT_GONE : NGX_RATELIMIT_EDIT_NOT_FOUND;
}


json_t *
ngx_ratelimit_edit_tier_show(ngx_ratelimit_edit_work_t *work)
{
    size_t   i;
    json_t  *rules, *rule, *id, *amount, *shown;

    rules = json_object_get(work->root, "rules");
    shown = json_object();

    json_array_foreach(rules, i, rule) {
        id = json_object_get(rule, "id");
        amount = json_object_get(json_object_get(rule, "tiers"),
                                 (char *) work->edit->name.data);

        if (amount == NULL || !json_is_string(id)
            || (work->rule.len && !ngx_ratelimit_edit_is(id, &work->rule)))
        {
            continue;
        }

        if (json_object_set(shown, json_string_value(id), amount) != 0) {
            json_decref(shown);
            return NULL;
        }
    }

    if (json_object_size(shown) == 0) {
        work->missing = (shown != NULL);
        json_decref(shown);
        return NULL;
    }

    return json_pack("{s:o}", "rules", shown);
}


ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_tiers_of_patch(ngx_ratelimit_edit_work_t *work)
{
    json_t  *keys, *merged, *tier_of;

    if (!json_is_object(work->body)) {
        return ngx_ratelimit_edit_problem(work, "", "must be an object");
    }

    keys = json_object_get(work->body, "keys");
    tier_of = json_object_get(work->root, "tier_of");

    if (json_is_object(keys)
        && json_object_set_new(work->body, "keys",
                               ngx_ratelimit_edit_hashed(work, keys,
                                             json_object_get(tier_of, "keys"),
                                                         "/keys"))
           != 0)
    {
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    merged = ngx_ratelimit_edit_merge(tier_of, work->body);

    if (json_object_set_new(work->root, "tier_of", merged) != 0) {
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    ngx_str_set(&work->edit->part, "/tier_of");

    return NGX_RATELIMIT_EDIT_OK;
}


json_t *
ngx_ratelimit_edit_tiers_of_show(ngx_ratelimit_edit_work_t *work)
{
    json_t  *shown, *tier_of;

    tier_of = json_object_get(work->root, "tier_of");
    shown = json_is_object(tier_of) ? json_copy(tier_of) : json_object();

    if (ngx_ratelimit_edit_object(shown, "keys") == NULL
        || ngx_ratelimit_edit_array(shown, "patterns") == NULL)
    {
        json_decref(shown);
        return NULL;
    }

    return shown;
}


ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_tier_of_put(ngx_ratelimit_edit_work_t *work)
{
    json_t      *keys, *tier, *value;
    ngx_str_t    name, pointer;
    ngx_uint_t   found;
    const char  *member, *key;

    if (!json_is_object(work->body)) {
        return ngx_ratelimit_edit_problem(work, "", "must be an object");
    }

    tier = json_object_get(work->body, "tier");

    if (tier == NULL) {
        (void) ngx_ratelimit_edit_problem(work, "/tier", "is missing");
    }

    json_object_foreach(work->body, member, value) {

        if (value == tier) {
            continue;
        }

        name.data = (u_char *) member;
        name.len = ngx_strlen(member);

        if (ngx_ratelimit_edit_escape(work, "", &name, &pointer) != NGX_OK) {
            return NGX_RATELIMIT_EDIT_ERROR;
        }

        ngx_ratelimit_problem(&work->edit->problems, &pointer, "is unknown");
    }

    if (work->edit->problems.n) {
        return NGX_RATELIMIT_EDIT_INVALID;
    }

    keys = ngx_ratelimit_edit_object(ngx_ratelimit_edit_object(work->root,
                                                               "tier_of"),
                                     "keys");
    key = ngx_ratelimit_edit_key(work, keys);
    found = (key != NULL);

    if (key == NULL) {
        key = ngx_ratelimit_edit_stored(work, &work->edit->name);
    }

    if (key == NULL || json_object_set(keys, key, tier) != 0) {
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    name.data = (u_char *) key;
    name.len = ngx_strlen(key);

    if (ngx_ratelimit_edit_escape(work, "/tier_of/keys", &name,
                                  &work->edit->part)
        != NGX_OK)
    {
        return NGX_RATELIMIT_EDIT_ERROR;
    }

    work->place = ngx_ratelimit_edit_tier_of_place;

    return found ? NGX_RATELIMIT_EDIT_OK : NGX_RATELIMIT_EDIT_CREATED;
}


/* "/tier_of/keys/sha256:..." is "/tier". */
static ngx_uint_t
ngx_ratelimit_edit_tier_of_place(ngx_ratelimit_edit_work_t *work,
    const ngx_str_t *pointer, ngx_str_t *place, size_t *len)
{
    ngx_str_t  *part;

    part = &work->edit->part;

    if (pointer->len < part->len
        || ngx_memcmp(pointer->data, part->data, part->len) != 0)
    {
        return 0;
    }

    ngx_str_set(place, "/tier");
    *len = part->len;

    return 1;
}


ngx_ratelimit_edit_status_e
ngx_ratelimit_edit_tier_of_delete(ngx_ratelimit_edit_work_t *work)
{
    json_t      *keys;
    const char  *key;

    keys = json_object_get(json_object_get(work->root, "tier_of"), "keys");
    key = ngx_ratelimit_edit_key(work, keys);

    if (key == NULL) {
        return NGX_RATELIMIT_EDIT_NOT_FOUND;
    }

    return json_object_del(keys, key) == 0 ? NGX_RATELIMIT_EDIT_GONE
                                           : NGX_RATELIMIT_EDIT_ERROR;
}


/* The tier that applies: the key's own, or that of the first pattern. */
json_t *
ngx_ratelimit_edit_tier_of_show(ngx_ratelimit_edit_work_t *work)
{
    json_t      *tier_of, *keys, *tier;
    const char  *key, *by;

    tier_of = json_object_get(work->root, "tier_of");
    keys = json_object_get(tier_of, "keys");
    key = ngx_ratelimit_edit_key(work, keys);

    if (key) {
        by = "key";
        tier = json_object_get(keys, key);

    } else {
        by = "pattern";
        tier = ngx_ratelimit_edit_pattern(work, json_object_get(tier_of,
                                                                "patterns"));
    }

    work->missing = (tier == NULL);

    return tier ? json_pack("{s:O, s:s}", "tier", tier, "by", by) : NULL;
}


/*
 * What a member of keys is called that is the key of the path: as it is there,
 * or its digest; or, of a digest, a key in the clear that has it. NULL: none.
 */
static const char *
ngx_ratelimit_edit_key(ngx_ratelimit_edit_work_t *work, json_t *keys)
{
    u_char       buf[NGX_RATELIMIT_DOCUMENT_KEY];
    char         digest[NGX_RATELIMIT_DOCUMENT_KEY + 1];
    json_t      *value;
    ngx_str_t    text, *name;
    const char  *key;

    name = &work->edit->name;

    if (json_object_get(keys, (char *) name->data)) {
        return (char *) name->data;
    }

    text = ngx_ratelimit_document_key(name, buf);

    if (text.len >= sizeof(digest)) {
        return NULL;
    }

    (void) ngx_cpystrn((u_char *) digest, text.data, text.len + 1);

    json_object_foreach(keys, key, value) {

        if (ngx_strcmp(key, digest) == 0) {
            return key;
        }

        if (!ngx_ratelimit_edit_digest(name)) {
            continue;
        }

        text.data = (u_char *) key;
        text.len = ngx_strlen(key);
        text = ngx_ratelimit_document_key(&text, buf);

        if (text.len == sizeof(digest) - 1
            && ngx_memcmp(text.data, digest, text.len) == 0)
        {
            return key;
        }
    }

    return NULL;
}


static ngx_uint_t
ngx_ratelimit_edit_digest(const ngx_str_t *key)
{
    return key->data && key->len > sizeof("sha256:") - 1
           && ngx_strncmp(key->data, "sha256:", sizeof("sha256:") - 1) == 0;
}


/* A digest matches no pattern: it may be of any key. */
static json_t *
ngx_ratelimit_edit_pattern(ngx_ratelimit_edit_work_t *work, json_t *patterns)
{
    size_t      i;
    json_t     *pattern, *glob;
    ngx_str_t  *name;

    name = &work->edit->name;

    if (ngx_ratelimit_edit_digest(name)) {
        return NULL;
    }

    json_array_foreach(patterns, i, pattern) {
        glob = json_object_get(pattern, "pattern");

        if (json_is_string(glob)
            && ngx_ratelimit_glob_match((u_char *) json_string_value(glob),
                                        json_string_length(glob),
                                        name->data, name->len))
        {
            return json_object_get(pattern, "tier");
        }
    }

    return NULL;
}
