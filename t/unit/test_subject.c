/*
 * What a policy made by hand says to a request, and until when.
 */

#include "policy.h"

#define NOW    1795000000

/* what a client may send to be taken for "acme" */
#define ACME   "sha256:822b33ad87c148a0a20a5ba7cd5ebcaa" \
               "68d36a18e7aad165554903f52ca82757"

#define COUNT(array)  (sizeof(array) / sizeof((array)[0]))


static ngx_rl_log_limit_t  log_limit;


/* Puts a key's digest into a map, which is made for it: NULL makes none. */
static void
map_put(ngx_rl_policy_t *policy, ngx_rl_map_t *map, const char *key,
    uint32_t value)
{
    u_char     digest[NGX_RL_MAP_KEY];
    ngx_str_t  text = str(key);

    if (map->entries == NULL) {
        ngx_rl_map_init(map, ngx_palloc(policy->pool, ngx_rl_map_bytes(4)), 4);
    }

    ngx_rl_policy_digest(&text, digest);
    (void) ngx_rl_map_put(map, digest, value);
}


static ngx_rl_globs_t *
globs_make(ngx_rl_policy_t *policy, const char *one, const char *two)
{
    ngx_rl_glob_text_t  *globs;

    globs = ngx_palloc(policy->pool, 2 * sizeof(ngx_rl_glob_text_t));

    globs[0].data = (const u_char *) one;
    globs[0].len = strlen(one);
    globs[1].data = (const u_char *) two;
    globs[1].len = strlen(two);

    return ngx_rl_globs_init(ngx_palloc(policy->pool, ngx_rl_globs_bytes(2)),
                             globs, 2);
}


static void
subject_make(ngx_rl_subject_t *subject, const char *key, const char *path)
{
    memset(subject, 0, sizeof(*subject));
    subject->method = 2;
    subject->path = str(path);
    subject->readings = READINGS(&subject->path);
    subject->api_key = str(key);
    subject->log = &log_nowhere;
    subject->log_limit = &log_limit;

    ngx_rl_subject_digest(subject);
}


/* An address, a glob, "rule:" and a value of a rule's key, or an API key. */
typedef struct {
    const char  *client;
    uint32_t     ends;
} listed_t;

#define NEVER  NGX_RL_CLIENT_ALWAYS


/* A rule's, whose key the lists name. */
static ngx_rl_policy_source_t *
listed_source(ngx_rl_policy_t *policy)
{
    static ngx_rl_rule_t  rule = { .key = ngx_string("$arg_k") };

    if (policy->sources.nelts == 0) {
        assert_int_equal(ngx_array_init(&policy->sources, policy->pool, 1,
                                        sizeof(ngx_rl_policy_source_t)),
                         NGX_OK);
        ngx_rl_policy_source_t *source = ngx_array_push(&policy->sources);
        memset(source, 0, sizeof(*source));
        source->rule = &rule;
        source->listed = 1;
    }

    return policy->sources.elts;
}


static void
list_make(ngx_rl_policy_t *policy, ngx_rl_clients_t *list,
    const listed_t *listed, size_t n)
{
    size_t                   i, k;
    ngx_rl_known_t           entries[16];

    assert_true(n <= COUNT(entries));

    for (i = 0, k = n; i < k; i++) {
        ngx_str_t text = str(listed[i].client);
        entries[i].value = listed[i].ends;

        if (ngx_rl_network_parse(text.data, text.len,
                                 &entries[i].network)
            == 0)
        {
            entries[i].kind = NGX_RL_CLIENT_NETWORK;

        } else if (ngx_rl_glob_wild(text.data, text.len)) {
            entries[i].kind = NGX_RL_CLIENT_GLOB;
            entries[i].glob = text;

        } else if (strncmp(listed[i].client, "rule:", 5) == 0) {
            entries[i].kind = NGX_RL_CLIENT_KEY;
            text = str(listed[i].client + 5);
            ngx_rl_policy_digest(&text, entries[i].digest);
            ngx_rl_policy_source_t *source = listed_source(policy);
            n = i;    /* it is the last one */

            assert_int_equal(ngx_rl_clients_make((list == &policy->deny)
                                                 ? &source->deny
                                                 : &source->allow, &entries[i],
                                                 1, policy->pool), NGX_OK);

        } else {
            entries[i].kind = NGX_RL_CLIENT_KEY;
            ngx_rl_policy_digest(&text, entries[i].digest);
        }
    }

    assert_int_equal(ngx_rl_clients_make(list, entries, n,
                                             policy->pool), NGX_OK);
}


static void
test_lists(void **state)
{
    ngx_rl_subject_t  subject;

    static const listed_t  deny[] = {
        { "sk_bad_*", NEVER }, { "sk_??", NEVER }, { "pk_denied", NEVER }
    };

    static const listed_t  allow[] = {
        { "sk_*", NEVER }, { "sk_1*", NEVER }, { "pk_denied", NEVER },
        { "pk_allowed", NEVER },
        { "sha256:8c4f9c9a2f8e55f2c9e5a9b1a2b0e5d0"
          "c6a7b8c9d0e1f2a3b4c5d6e7f8091a2b", NEVER }
    };

    static const struct {
        const char              *key;
        ngx_rl_listed_e   listed;
    } keys[] = {
        { "", NGX_RL_LISTED_NOT }, { "pk", NGX_RL_LISTED_NOT }, { "sk_bad_1",
            NGX_RL_LISTED_DENIED }, { "sk_12", NGX_RL_LISTED_DENIED },
            { "sk_123", NGX_RL_LISTED_ALLOWED }, { "pk_denied",
            NGX_RL_LISTED_DENIED }, { "pk_allowed", NGX_RL_LISTED_ALLOWED },

        /* a text of that form is the hash itself */

        { "sha256:8c4f9c9a2f8e55f2c9e5a9b1a2b0e5d0"
          "c6a7b8c9d0e1f2a3b4c5d6e7f8091a2b", NGX_RL_LISTED_ALLOWED },
        { "sha256:8C4F9C9A2F8E55F2C9E5A9B1A2B0E5D0"
          "c6a7b8c9d0e1f2a3b4c5d6e7f8091a2b", NGX_RL_LISTED_ALLOWED },
        { "sha256:gc4f9c9a2f8e55f2c9e5a9b1a2b0e5d0"
          "c6a7b8c9d0e1f2a3b4c5d6e7f8091a2b", NGX_RL_LISTED_NOT },
    };

    ngx_rl_policy_t *policy = policy_make();
    list_make(policy, &policy->deny, deny, COUNT(deny));
    list_make(policy, &policy->allow, allow, COUNT(allow));
    assert_int_equal(ngx_rl_policy_complete(policy), NGX_OK);
    assert_true(policy->needs & NGX_RL_NEEDS_DIGEST);
    assert_true(policy->needs & NGX_RL_NEEDS_KEY);

    for (ngx_uint_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        subject_make(&subject, keys[i].key, "/");
        assert_int_equal(ngx_rl_policy_listed(policy, &subject, NOW),
                         keys[i].listed);
    }

    ngx_rl_policy_release(policy);
}


static ngx_rl_listed_e
listed_at(const ngx_rl_policy_t *policy, const char *client, time_t now)
{
    ngx_rl_network_t  network;
    ngx_rl_subject_t  subject;

    ngx_str_t text = str(client);

    if (strncmp(client, "rule:", 5) == 0) {
        text = str(client + 5);
        return ngx_rl_policy_listed_key(policy->sources.elts, &text, now);
    }

    if (ngx_rl_network_parse(text.data, text.len, &network) != 0) {
        subject_make(&subject, client, "/");
        return ngx_rl_policy_listed(policy, &subject, now);
    }

    subject_make(&subject, "", "/");
    memcpy(subject.address, network.address, NGX_RL_ADDRESS);
    subject.addressed = 1;

    return ngx_rl_policy_listed(policy, &subject, now);
}


/* Addresses, values of keys of rules, lists of nginx.conf; when each ends. */
static void
test_lists_end(void **state)
{
    static const listed_t  deny[] = {
        { "10.0.0.0/8", NOW + 10 }, { "10.1.0.0/16", NOW }, { "10.1.0.0/16",
            NOW + 5 }, { "2001:db8::/32", NOW - 1 }, { "sk_a*", NOW + 1 },
            { "sk_*", NOW + 7 }, { "sk_a?", NOW }, { "k", NOW + 3 }, { "k",
            NOW + 2 }, { "rule:acme", NOW + 9 }
    };

    static const listed_t  allow[] = {
        { "10.1.2.3", NOW + 15 }, { "rule:acme", NOW + 18 }
    };

    static const listed_t  fixed[] = { { "192.0.2.0/24", NEVER } };

    /* seconds for which it is denied, and allowed behind that */

    static const struct {
        const char  *client;
        time_t       denied;
        time_t       allowed;
    } sets[] = {
        { "10.9.9.9", 10, 0 }, { "10.1.2.4", 10, 0 }, { "10.1.2.3", 10, 15 },
            { "192.0.2.9", 20, 0 }, { "2001:db8::1", 0, 0 }, { "sk_ab", 7, 0 },
            { "k", 3, 0 }, { "K", 0, 0 }, { "rule:acme", 9, 18 }, { "rule:eve",
            0, 0 }, { "acme", 0, 0 }, { "rule:" ACME, 0, 0 }
    };

    ngx_rl_policy_t *policy = policy_make();
    list_make(policy, &policy->deny, deny, COUNT(deny));
    list_make(policy, &policy->allow, allow, COUNT(allow));
    list_make(policy, &policy->limiter->base->deny, fixed, COUNT(fixed));
    assert_int_equal(ngx_rl_policy_complete(policy), NGX_OK);

    for (size_t i = 0; i < COUNT(sets); i++) {
        for (time_t now = NOW; now < NOW + 20; now++) {
            assert_int_equal(listed_at(policy, sets[i].client, now),
                             (now < NOW + sets[i].denied)
                             ? NGX_RL_LISTED_DENIED
                             : (now < NOW + sets[i].allowed)
                             ? NGX_RL_LISTED_ALLOWED
                             : NGX_RL_LISTED_NOT);
        }
    }

    ngx_rl_policy_release(policy);

    /* what nginx.conf alone needs */

    policy = policy_make();
    list_make(policy, &policy->limiter->base->deny, fixed, COUNT(fixed));
    assert_int_equal(ngx_rl_policy_complete(policy), NGX_OK);
    assert_int_equal(policy->needs, NGX_RL_NEEDS_LISTS|NGX_RL_NEEDS_ADDRESS);
    ngx_rl_policy_release(policy);
}


/* The keys of rules: "<rule>=<value>", one of them. */
static ngx_int_t
tier_key_of(void *data, ngx_rl_rule_t *rule, ngx_str_t *key)
{
    const char *of = data;

    ngx_str_null(key);

    if (strcmp(of, "none") == 0) {
        return NGX_ERROR;
    }

    if (strlen(of) > 2 && of[0] == rule->id.data[0]) {
        *key = str(of + 2);
    }

    return NGX_OK;
}


/* A glob, and two keys, with their tiers; NULL: none. */
static void
tier_source(ngx_rl_policy_t *policy, ngx_rl_rule_t *rule, const char *glob,
    uint32_t by_glob, const char *one, const char *two, uint32_t by_key)
{
    ngx_rl_known_t           known[4];

    const char  *globs[] = { glob, "never*" };
    const char  *keys[] = { one, two };

    if (policy->sources.elts == NULL) {
        assert_int_equal(ngx_array_init(&policy->sources, policy->pool, 1,
                                        sizeof(ngx_rl_policy_source_t)),
                         NGX_OK);
    }

    ngx_rl_policy_source_t *source = ngx_array_push(&policy->sources);
    memset(source, 0, sizeof(*source));
    source->rule = rule;
    size_t n = 0;

    for (size_t i = 0; i < 2; i++) {
        if (glob) {
            known[n].kind = NGX_RL_CLIENT_GLOB;
            known[n].glob = str(globs[i]);
            known[n++].value = i ? 9 : by_glob;
        }

        if (keys[i]) {
            known[n].kind = NGX_RL_CLIENT_KEY;
            ngx_str_t text = str(keys[i]);
            ngx_rl_policy_digest(&text, known[n].digest);
            known[n++].value = by_key;
        }
    }

    assert_int_equal(ngx_rl_clients_make(&source->tiers, known, n,
                                         policy->pool), NGX_OK);
}


/*
 * By a whole key: the API key's, then those of the rules in their order. Then
 * by the first pattern, whoever's it is. Then what the location says.
 */
static void
test_tier_of(void **state)
{
    ngx_str_t         location = ngx_string("location");
    ngx_rl_subject_t  subject;

    static ngx_str_t  tiers[] = { ngx_string("none"), ngx_string("third"),
        ngx_string("second"), ngx_string("first"), ngx_string("assigned"),
        ngx_string("gold"), ngx_string("iron") };

    static const struct {
        const char  *key;
        const char  *of;
        const char  *tier;
    } sets[] = {
        { "", "", "location" }, { "pk", "", "location" }, { "sk_b", "",
            "second" }, { "sk_abc", "", "assigned" }, { "k", "", "assigned" },
            { "k", "t=acme", "assigned" }, { "pk", "t=acme", "gold" }, { "",
            "t=acme", "gold" }, { "sk_b", "t=acme", "gold" }, { "", "u=acme",
            "iron" }, { "acme", "", "location" }, { "", "u=sk_abc",
            "location" }, { "", "t=eu-1", "first" }, { "sk_b", "t=eu-1",
            "first" }, { "", "u=eu-1", "third" }, { "sk_b", "u=eu-1",
            "second" }, { "", "t=k", "location" }, { "", "t=" ACME,
            "location" }, };

    ngx_rl_policy_t *policy = policy_make();
    policy->tiers = tiers;
    tier_source(policy, NULL, "sk_*", 2, "sk_abc", "k", 4);
    tier_source(policy, rule_push(policy, "t"), "eu-*", 3, "acme", NULL, 5);
    tier_source(policy, rule_push(policy, "u"), "eu-*", 1, "acme", NULL, 6);

    assert_int_equal(ngx_rl_policy_complete(policy), NGX_OK);
    assert_int_equal(policy->needs, NGX_RL_NEEDS_KEY|NGX_RL_NEEDS_DIGEST);

    for (ngx_uint_t i = 0; i < COUNT(sets); i++) {
        subject_make(&subject, sets[i].key, "/");
        assert_int_equal(ngx_rl_subject_tier(&subject, policy, &location,
                                             tier_key_of, (void *) sets[i].of),
                         NGX_OK);
        assert_int_equal(subject.tier.len, strlen(sets[i].tier));
        assert_memory_equal(subject.tier.data, sets[i].tier, subject.tier.len);
    }

    subject_make(&subject, "", "/");
    assert_int_equal(ngx_rl_subject_tier(&subject, policy, &location,
                                         tier_key_of, (void *) "none"),
                     NGX_ERROR);
    ngx_rl_policy_release(policy);

    /* what only rules' keys have needs no API key */

    policy = policy_make();
    tier_source(policy, NULL, NULL, 0, NULL, NULL, 0);
    tier_source(policy, rule_push(policy, "t"), "eu-*", 3, "acme", NULL, 5);
    assert_int_equal(ngx_rl_policy_complete(policy), NGX_OK);
    assert_int_equal(policy->needs, 0);
    ngx_rl_policy_release(policy);
}


/* The rule's own limit < the tier's < the API key's < that of its own key. */
static void
test_allowance(void **state)
{
    ngx_str_t            key;
    ngx_rl_tier_limit_t  tiers[2];
    ngx_rl_origin_e      origin;
    ngx_rl_subject_t     subject;
    ngx_rl_allowance_t   key_limits[2];

    static const struct {
        const char  *key;        /* of the rule */
        const char  *api_key;
        const char  *tier;
        const char  *from;
    } sets[] = {
        { "t", "other", "pr", "rule" }, { "t", "other", "pro", "tier" }, { "t",
            "vip", "pro", "key" }, { "acme", "vip", "pro", "rule_key" },
            { "acme", "", "", "rule_key" }, { "", "acme", "", "rule" }, { "vip",
            "t", "", "rule" }, { ACME, "", "", "rule" }, };

    ngx_rl_policy_t *policy = policy_make();
    ngx_rl_rule_t *rule = rule_push(policy, "d");
    rule->tier_limits = tiers;
    rule->ntier_limits = 2;
    rule->key_limits = key_limits;
    tiers[0].tier = str("free");
    tiers[1].tier = str("pro");
    map_put(policy, &rule->keys, "vip", 0);
    map_put(policy, &rule->own_keys, "acme", 1);
    assert_int_equal(ngx_rl_policy_complete(policy), NGX_OK);
    assert_true(policy->needs & NGX_RL_NEEDS_DIGEST);

    for (ngx_uint_t i = 0; i < COUNT(sets); i++) {
        subject_make(&subject, sets[i].api_key, "/");
        subject.tier = str(sets[i].tier);
        key = str(sets[i].key);

        assert_ptr_equal(ngx_rl_rule_allowance(rule, &subject, &key,
                                               &origin),
                         strcmp(sets[i].from, "rule") == 0 ? NULL
                         : strcmp(sets[i].from, "tier") == 0
                         ? &tiers[1].allowance
                         : &key_limits[strcmp(sets[i].from, "key") != 0]);
        assert_string_equal(ngx_rl_origin_names[origin], sets[i].from);
    }

    /* such a rule needs no API key */

    rule->keys.entries = NULL;
    assert_int_equal(ngx_rl_policy_complete(policy), NGX_OK);
    assert_int_equal(policy->needs, NGX_RL_NEEDS_LIMIT);

    ngx_rl_policy_release(policy);
}


static void
override_is(const ngx_rl_policy_t *policy, const ngx_rl_rule_t *rule,
    const char *api_key, const char *key, time_t now, const char *id)
{
    ngx_str_t                 text = str(key);
    ngx_rl_subject_t          subject;
    const ngx_rl_override_t  *o;

    subject_make(&subject, api_key, "/");

    o = ngx_rl_policy_override(policy, rule, &subject, &text, now);

    if (id == NULL) {
        assert_null(o);
        return;
    }

    assert_non_null(o);
    assert_int_equal(o->id.len, strlen(id));
    assert_memory_equal(o->id.data, id, o->id.len);
}


static void
test_overrides(void **state)
{
    u_char              d[NGX_RL_MAP_KEY];
    ngx_str_t           part = ngx_string("$http_x_tenant");
    ngx_str_t           acme = ngx_string("acme");
    ngx_str_t           parts[] = { ngx_string("$arg_u"),
                                    ngx_string("$http_x_tenant") };

    ngx_rl_override_t   overrides[] = {
        /* of "vip", in an order that is not the document's */
        { ngx_string("any"), ngx_null_string, 0, 2000000, { 0 }, 2 },
            { ngx_string("first"), ngx_string("one"), NOW + 60, 3000000, { 0 },
            0 }, { ngx_string("last"), ngx_string("one"), NOW + 10, 4000000,
            { 0 }, NGX_RL_MAP_NONE },
        /* of the tenant "acme" */
        { ngx_string("tenant"), ngx_null_string, NOW + 60, 500000, { 0 },
          NGX_RL_MAP_NONE },
    };

    ngx_rl_policy_t *policy = policy_make();
    ngx_rl_rule_t *one = rule_push(policy, "one");
    ngx_rl_rule_t *two = rule_push(policy, "two");
    two->nparts = 2;
    two->parts = parts;
    two->key = str("$arg_u\x1f$http_x_tenant");
    ngx_rl_rule_t *split = rule_push(policy, "split");
    split->shards = 2;

    policy->overrides = overrides;
    policy->tenants = 1;
    map_put(policy, &policy->override_keys, "vip", 1);
    ngx_rl_policy_part_digest(&part, &acme, 0, d);
    (void) ngx_rl_map_put(&policy->override_keys, d, 3);
    assert_int_equal(ngx_rl_policy_complete(policy), NGX_OK);

    override_is(policy, one, "other", "x", NOW, NULL);
    override_is(policy, one, "", "x", NOW, NULL);
    override_is(policy, split, "vip", "x", NOW, NULL);

    /* the last that names the rule; each until its second */

    override_is(policy, one, "vip", "x", NOW + 9, "last");
    override_is(policy, one, "vip", "x", NOW + 10, "first");
    override_is(policy, one, "vip", "x", NOW + 59, "first");
    override_is(policy, one, "vip", "x", NOW + 60, "any");
    override_is(policy, one, "vip", "x", NOW + 1000000, "any");
    override_is(policy, two, "vip", "u\x1fx", NOW, "any");

    /* by a part of the key, whichever it is */

    override_is(policy, two, "", "u\x1f" "acme", NOW, "tenant");
    override_is(policy, two, "", "u\x1f" "acme", NOW + 60, NULL);
    override_is(policy, two, "", "acme\x1fu", NOW, NULL);
    override_is(policy, two, "", "u\x1f" "acme2", NOW, NULL);
    override_is(policy, two, "vip", "u\x1f" "acme", NOW, "tenant");
    override_is(policy, one, "", "acme", NOW, NULL);

    ngx_rl_policy_release(policy);
}


static void
test_override_limit(void **state)
{
    ngx_rl_limit_t  limit;

    ngx_rl_rule_t *rule = limiter.base->fixed[0];

    ngx_rl_override_t o = { 0 };
    o.millionths = 2500000;
    assert_null(ngx_rl_override_limit(&o, &rule->spec, &limit));
    assert_int_equal(limit.capacity, 250);
    assert_int_not_equal(limit.mark, rule->limit.mark);

    o.millionths = 0;
    o.amount.tokens = 500;
    assert_null(ngx_rl_override_limit(&o, &rule->spec, &limit));
    assert_int_equal(limit.capacity, 500);

    o.amount.tokens = (uint64_t) 1 << 40;
    assert_non_null(ngx_rl_override_limit(&o, &rule->spec, &limit));
}


static void
test_match(void **state)
{
    uint32_t             values[] = { NEVER, NEVER };
    ngx_rl_subject_t     subject;
    ngx_rl_glob_text_t   host = { (const u_char *) "*.example", 9 };

    ngx_rl_policy_t *policy = policy_make();
    ngx_rl_clients_t api_keys = { 0 };
    api_keys.globs = globs_make(policy, "sk_*", "sk_1*");
    api_keys.glob_values = values;

    ngx_rl_rule_t *rule = rule_push(policy, "d");
    rule->methods = 2;
    rule->tier = str("pro");
    rule->hosts = &host;
    rule->nhosts = 1;
    rule->api_keys = &api_keys;
    rule->route = str("/v1/{id}");

    assert_int_equal(ngx_rl_policy_complete(policy), NGX_OK);
    assert_true(policy->needs & NGX_RL_NEEDS_KEY);
    assert_false(policy->needs & NGX_RL_NEEDS_DIGEST);

    subject_make(&subject, "sk_1", "/v1/7");
    subject.tier = str("pro");
    subject.host = str("a.example");

#define is(why)                                                               \
    assert_string_equal(                                                      \
        ngx_rl_match_names[ngx_rl_rule_match(rule, 0, &subject)],             \
        why)

    is("matched");
    subject.path = str("/v2/7");
    subject.readings = READINGS(&subject.path);
    is("path");
    subject.api_key = str("pk_1");
    is("api_key");
    subject.api_key.len = 0;
    is("api_key");
    subject.host = str("example");
    is("host");
    subject.tier.len = 0;
    is("tier");
    subject.method = 4;
    is("method");

    ngx_rl_policy_release(policy);
}


/* Outside its active times a rule does not apply, whatever else matches. */
static void
test_active(void **state)
{
    ngx_time_t        now;
    ngx_rl_subject_t  subject;

    /* Berlin, 2026: its summer time is from 29 March to 25 October */

    static const ngx_rl_tz_t  berlin = {
        .offset = 3600, .n = 2, .changes = { { 1774746000, 7200 }, { 1792890000,
            3600 } }
    };

    static const struct {
        time_t       now;
        uint32_t     days;
        uint32_t     from;
        uint32_t     to;
        ngx_uint_t   utc;
        const char  *why;
    } sets[] = {

        /* Friday, 27 March, 09:00 there */
        { 1774598400 - 1, 0x1f, 540, 1020, 0, "not_active" }, { 1774598400,
            0x1f, 540, 1020, 0, "matched" }, { 1774598400, 0x1f, 540, 1020, 1,
            "not_active" }, { 1774598400 + 3600, 0x1f, 540, 1020, 1,
            "matched" },

        /* Monday, 30 March, the same by the clock, an hour earlier */
        { 1774854000 - 1, 0x1f, 540, 1020, 0, "not_active" },
        { 1774854000, 0x1f, 540, 1020, 0, "matched" },

        /* that Sunday has no 02:00: 01:59:59 and 03:00 */
        { 1774746000 - 1, 0x40, 120, 180, 0, "not_active" },
        { 1774746000, 0x40, 120, 180, 0, "not_active" },
        { 1774746000, 0x40, 180, 240, 0, "matched" },

        /* 25 October has it twice */
        { 1792886400 - 1, 0x40, 120, 180, 0, "not_active" },
        { 1792886400, 0x40, 120, 180, 0, "matched" },
        { 1792890000, 0x40, 120, 180, 0, "matched" },
        { 1792893600 - 1, 0x40, 120, 180, 0, "matched" },
        { 1792893600, 0x40, 120, 180, 0, "not_active" },
    };

    ngx_rl_policy_t *policy = policy_make();
    ngx_rl_rule_t *rule = rule_push(policy, "d");
    rule->timed = 1;

    assert_int_equal(ngx_rl_policy_complete(policy), NGX_OK);
    subject_make(&subject, "", "/");

    memset(&now, 0, sizeof(now));
    ngx_cached_time = &now;

    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        now.sec = sets[i].now;
        rule->active.days = sets[i].days;
        rule->active.from = sets[i].from;
        rule->active.to = sets[i].to;
        rule->active_tz = sets[i].utc ? NULL : &berlin;
        is(sets[i].why);
    }

    rule->disabled = 1;
    rule->skipped = 1;
    is("disabled");

    ngx_rl_policy_release(policy);
}
