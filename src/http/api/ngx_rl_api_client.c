/*
 * A client that no request brings: a rule and the value of its key name it.
 * What the lists, the tiers and the overrides of the document say of it.
 */

#include "ngx_rl_api.h"

#include "ngx_rl_subject.h"

/* of a rule's key: "$ratelimit_api_key" */
#define ngx_rl_api_part(rule, i)                                              \
    ((rule)->nparts ? &(rule)->parts[i] : &(rule)->key)

const char  ngx_rl_api_by_variable[] = "limit";
const char  ngx_rl_api_by_location[] = "tier";


/*
 * If the tier is not named, the client gets the one that a location would give
 * a request with this key. The variables of the key have its values, "$name" or
 * "${name}", where anything reads them by their index; all others are those of
 * the request that asks.
 */
static ngx_int_t
ngx_rl_api_client_tier(ngx_rl_api_client_t *client,
    const ngx_rl_zone_conf_t *zone)
{
    ngx_int_t                   rc;
    ngx_str_t                   name;
    ngx_uint_t                  i, n;
    ngx_http_request_t         *r;
    ngx_http_variable_t        *known;
    ngx_http_variable_value_t  *variables, *own;
    ngx_http_core_main_conf_t  *cmcf;

    r = client->api->request;

    if (client->tier.data || zone->tier == NULL || zone->tiers) {
        return NGX_OK;
    }

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);
    known = cmcf->variables.elts;

    own = ngx_pcalloc(r->pool, cmcf->variables.nelts
                               * sizeof(ngx_http_variable_value_t));
    if (own == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < client->nkeys; i++) {
        name = *ngx_rl_api_part(client->rule, i);

        if (name.len < 2 || name.data[0] != '$') {
            continue;
        }

        name.data++;
        name.len--;

        if (name.data[0] == '{') {
            name.data++;
            name.len -= 2;
        }

        for (n = 0; n < cmcf->variables.nelts; n++) {

            if (known[n].name.len == name.len
                && ngx_strncasecmp(known[n].name.data, name.data, name.len)
                   == 0)
            {
                own[n].data = client->keys[i].data;
                own[n].len = client->keys[i].len;
                own[n].valid = 1;
                break;
            }
        }
    }

    variables = r->variables;
    r->variables = own;

    rc = ngx_rl_value_get(r, zone->tier, &client->tier);

    r->variables = variables;

    return rc;
}


/*
 * The key of another rule, if it is that of the client or a part of it. Else
 * only a request has it.
 */
static ngx_int_t
ngx_rl_api_client_key(void *data, ngx_rl_rule_t *rule, ngx_str_t *key)
{
    ngx_rl_api_client_t *client = data;

    ngx_uint_t        i;
    const ngx_str_t  *part;

    if (ngx_max(rule->nparts, 1) == client->nkeys
        && ngx_rl_equal(&rule->key, &client->rule->key))
    {
        *key = client->key;
        return NGX_OK;
    }

    ngx_str_null(key);

    if (rule->nparts > 1) {
        return NGX_OK;
    }

    part = ngx_rl_api_part(rule, 0);

    for (i = 0; i < client->nkeys; i++) {
        if (ngx_rl_equal(ngx_rl_api_part(client->rule, i), part)) {
            *key = client->keys[i];
        }
    }

    return NGX_OK;
}


/*
 * Makes what a request with this key would have: the client, the tier, and the
 * lists that have the API key, the address or the value of the rule's key.
 * Other values of a request may be on a list, too.
 */
static ngx_int_t
ngx_rl_api_client_subject(ngx_rl_api_client_t *client)
{
    ngx_str_t              *text;
    ngx_uint_t              i;
    const ngx_str_t        *part;
    ngx_rl_network_t        network;
    ngx_rl_subject_t       *subject;
    const ngx_rl_policy_t  *policy;

    static const ngx_str_t  api_key = ngx_string("$ratelimit_api_key");
    static const ngx_str_t  remote = ngx_string("$remote_addr");
    static const ngx_str_t  network_of = ngx_string("$ratelimit_client");

    policy = client->rule->policy;
    subject = &client->subject;
    subject->log = client->api->request->connection->log;

    for (i = 0; i < client->nkeys; i++) {
        text = &client->keys[i];
        part = ngx_rl_api_part(client->rule, i);

        if (subject->api_key.len == 0 && ngx_rl_equal(part, &api_key)) {
            subject->api_key = *text;
        }

        if ((ngx_rl_equal(part, &remote) || ngx_rl_equal(part, &network_of))
            && ngx_rl_network_parse(text->data, text->len, &network) == 0)
        {
            ngx_memcpy(subject->address, network.address, NGX_RL_ADDRESS);
            subject->addressed = 1;
        }
    }

    if (policy->needs & NGX_RL_NEEDS_DIGEST) {
        ngx_rl_subject_digest(subject);
    }

    if (ngx_rl_listed(policy, subject, ngx_rl_api_client_key, client,
                      &client->listed)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_rl_subject_tier(subject, policy, &client->tier,
                               ngx_rl_api_client_key, client);
}


ngx_int_t
ngx_rl_api_client(ngx_rl_api_client_t *client)
{
    ngx_rl_rule_t             *rule;
    ngx_rl_zone_conf_t        *zone;
    const ngx_rl_allowance_t  *allowance;

    rule = client->rule;
    zone = ngx_queue_data(client->api->conf->limiter, ngx_rl_zone_conf_t,
                          limiter);

    if (ngx_rl_api_client_tier(client, zone) != NGX_OK
        || ngx_rl_api_client_subject(client) != NGX_OK)
    {
        return NGX_ERROR;
    }

    allowance = ngx_rl_rule_allowance(rule, &client->subject, &client->key,
                                      NULL);

    if (allowance == NULL && rule->ntier_limits
        && client->subject.tier.len == 0 && zone->tiers
        && client->tier.data == NULL)
    {
        client->unknown = ngx_rl_api_by_location;
        return NGX_OK;
    }

    if (allowance == NULL && rule->dynamic) {
        allowance = client->own;

        if (allowance == NULL) {
            client->unknown = ngx_rl_api_by_variable;
            return NGX_OK;
        }
    }

    return ngx_rl_allow(client->api->request->pool, rule, &client->subject,
                        &client->key, allowance, &client->allowed);
}
