/*
 * Other limits of a document's rule: by tier, and by API key.
 */

#include "ngx_ratelimit_rule_json.h"

#define NGX_RATELIMIT_MAX_TIERS  256    /* of a rule */

static void ngx_ratelimit_read_rule_tiers(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft,
    ngx_uint_t limited);
static void ngx_ratelimit_read_rule_keys(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft,
    ngx_uint_t limited);


void
ngx_ratelimit_read_allowances(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft,
    ngx_uint_t limited)
{
    ngx_ratelimit_place_t  place;

    place.up = at;

    if (draft->tiers) {
        place.name = "tiers";
        ngx_ratelimit_read_rule_tiers(reader, &place, draft, limited);
    }

    if (draft->override) {
        place.name = "override";
        ngx_ratelimit_read_rule_keys(reader, &place, draft, limited);
    }
}


static void
ngx_ratelimit_read_rule_tiers(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft,
    ngx_uint_t limited)
{
    void                    *iter;
    size_t                   n;
    ngx_str_t                name;
    ngx_ratelimit_tier_t    *tier;
    ngx_ratelimit_rule_t    *rule;
    ngx_ratelimit_place_t    place;
    ngx_ratelimit_amount_t   amount;

    rule = draft->rule;
    n = json_object_size(draft->tiers);

    if (n > NGX_RATELIMIT_MAX_TIERS) {
        ngx_ratelimit_read_problem(reader, at, "expected at most %d tiers",
                                   NGX_RATELIMIT_MAX_TIERS);
        return;
    }

    tier = ngx_ratelimit_read_alloc(reader, n * sizeof(ngx_ratelimit_tier_t));
    if (tier == NULL) {
        return;
    }

    rule->tiers = tier;
    rule->ntiers = n;
    place.up = at;

    for (iter = json_object_iter(draft->tiers);
         iter;
         iter = json_object_iter_next(draft->tiers, iter))
    {
        place.name = json_object_iter_key(iter);
        name.data = (u_char *) place.name;
        name.len = json_object_iter_key_len(iter);

        (void) ngx_ratelimit_read_tier(reader, &place, &name);

        tier->tier.len = name.len;
        tier->tier.data = ngx_pstrdup(reader->pool, &name);

        if (tier->tier.data == NULL && name.len) {
            reader->failed = 1;
            return;
        }

        if (ngx_ratelimit_read_amount(reader, &place,
                                      json_object_iter_value(iter),
                                      draft->wrong ? NULL
                                      : &rule->spec.algorithm, &amount)
            == NGX_OK
            && limited)
        {
            (void) ngx_ratelimit_read_allowance(reader, &place, rule, &amount,
                                                &tier->allowance);
        }

        tier++;
    }
}


static void
ngx_ratelimit_read_rule_keys(ngx_ratelimit_reader_t *reader,
    const ngx_ratelimit_place_t *at, ngx_ratelimit_draft_t *draft,
    ngx_uint_t limited)
{
    void                     *iter;
    u_char                  (*names)[NGX_RATELIMIT_SHA256];
    size_t                    n;
    uint32_t                  i;
    ngx_str_t                 text;
    ngx_uint_t                problems;
    ngx_ratelimit_rule_t     *rule;
    ngx_ratelimit_place_t     place;
    ngx_ratelimit_amount_t    amount;
    ngx_ratelimit_api_key_t   key;

    if (!ngx_ratelimit_read_few(reader, at, NULL, draft->override,
                                NGX_RATELIMIT_DOCUMENT_ENTRIES))
    {
        return;
    }

    rule = draft->rule;
    problems = reader->problems->n;
    n = json_object_size(draft->override);

    rule->allowances = ngx_ratelimit_read_alloc(reader,
                                        n * sizeof(ngx_ratelimit_allowance_t));
    if (rule->allowances == NULL
        || ngx_ratelimit_read_map(reader, &rule->keys, n) != NGX_OK)
    {
        return;
    }

    names = ngx_alloc(n * sizeof(names[0]), reader->pool->log);
    if (names == NULL) {
        reader->failed = 1;
        return;
    }

    i = 0;
    place.up = at;

    for (iter = json_object_iter(draft->override);
         iter;
         iter = json_object_iter_next(draft->override, iter), i++)
    {
        place.name = json_object_iter_key(iter);
        text.data = (u_char *) place.name;
        text.len = json_object_iter_key_len(iter);

        if (ngx_ratelimit_read_api_key(reader, &place, &text, 0, &key)
            == NGX_OK)
        {
            ngx_memcpy(names[i], key.sha256, NGX_RATELIMIT_SHA256);

            if (ngx_ratelimit_map_put(&rule->keys, key.sha256, i)
                != NGX_RATELIMIT_MAP_NONE)
            {
                ngx_ratelimit_read_problem(reader, &place, "is the same key as "
                                           "another one here");
            }
        }

        if (ngx_ratelimit_read_amount(reader, &place,
                                      json_object_iter_value(iter),
                                      draft->wrong ? NULL
                                      : &rule->spec.algorithm, &amount)
            == NGX_OK
            && limited)
        {
            (void) ngx_ratelimit_read_allowance(reader, &place, rule, &amount,
                                                &rule->allowances[i]);
        }
    }

    if (problems == reader->problems->n) {
        ngx_ratelimit_read_rename(reader, draft->override, names);
    }

    ngx_free(names);
}
