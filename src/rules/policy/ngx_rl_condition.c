/*
 * The conditions of a rule on headers, arguments and variables, whose values
 * the layer above reads, and on the client's address and API key.
 */

#include "ngx_rl_param.h"

#include "ngx_rl_policy.h"

#define NGX_RL_MAX_NETWORKS  10000   /* of a rule */


/* Behind the others of the same name: one of them must hold. */
static const char *
ngx_rl_condition_add(ngx_rl_draft_t *draft, const ngx_rl_condition_t *condition)
{
    ngx_uint_t           i, n;
    ngx_rl_rule_t       *rule;
    ngx_rl_condition_t  *list;

    rule = &draft->rule;

    if (rule->conditions == NULL) {
        rule->conditions = ngx_pcalloc(draft->pool,
                                       NGX_RL_MAX_CONDITIONS
                                       * sizeof(ngx_rl_condition_t));
        if (rule->conditions == NULL) {
            return "";
        }
    }

    list = rule->conditions;
    n = rule->nconditions;

    if (n == NGX_RL_MAX_CONDITIONS) {
        return "at most 32 conditions";
    }

    for (i = n; i > 0; i--) {
        if (list[i - 1].kind == condition->kind
            && list[i - 1].name.len == condition->name.len
            && ngx_strncasecmp(list[i - 1].name.data, condition->name.data,
                               condition->name.len)
               == 0)
        {
            ngx_memmove(&list[i + 1], &list[i],
                        (n - i) * sizeof(ngx_rl_condition_t));
            break;
        }
    }

    n = i ? i : n;

    list[n] = *condition;
    list[n].other = (i != 0);
    rule->nconditions++;

    return NULL;
}


/* A header's name is one that a variable may have. */
static ngx_uint_t
ngx_rl_condition_name(const ngx_rl_condition_t *condition)
{
    u_char      ch;
    ngx_uint_t  i;

    for (i = 0; i < condition->name.len; i++) {
        ch = condition->name.data[i];

        if (condition->kind == NGX_RL_IF_HEADER && ch != '-' && ch != '_'
            && !(ch >= '0' && ch <= '9')
            && !((ch | 0x20) >= 'a' && (ch | 0x20) <= 'z'))
        {
            return 0;
        }
    }

    return i >= 1 && i <= 64;
}


/* "name:glob", or a text with variables */
const char *
ngx_rl_set_condition(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    u_char              *colon, *last;
    ngx_rl_condition_t   condition;

    ngx_memzero(&condition, sizeof(ngx_rl_condition_t));

    condition.kind = (ngx_rl_condition_e) (param->id - NGX_RL_PARAM_HEADER);
    condition.name = *text;

    if (condition.kind == NGX_RL_IF_VALUE) {
        return ngx_rl_variables_in(text)
               ? ngx_rl_condition_add(draft, &condition)
               : param->expected;
    }

    last = text->data + text->len;
    colon = text->len ? ngx_strlchr(text->data, last, ':') : NULL;

    if (colon == NULL) {
        return param->expected;
    }

    condition.name.len = colon - text->data;
    condition.glob.data = colon + 1;
    condition.glob.len = last - condition.glob.data;

    if (!ngx_rl_condition_name(&condition)
        || ngx_rl_glob_check(condition.glob.data, condition.glob.len))
    {
        return param->expected;
    }

    return ngx_rl_condition_add(draft, &condition);
}


ngx_rl_known_t *
ngx_rl_draft_client(ngx_rl_draft_t *draft, ngx_rl_known_e kind)
{
    ngx_rl_known_t  *client;

    if (draft->clients == NULL) {
        draft->clients = ngx_array_create(draft->temp, 4,
                                          sizeof(ngx_rl_known_t));
    }

    client = draft->clients ? ngx_array_push(draft->clients) : NULL;

    if (client) {
        ngx_memzero(client, sizeof(ngx_rl_known_t));
        client->kind = kind;
    }

    return client;
}


const char *
ngx_rl_set_network(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    ngx_rl_known_t   *client;
    ngx_rl_network_t   network;

    if (ngx_rl_network_parse(text->data, text->len, &network) != 0) {
        return param->expected;
    }

    if (draft->nnetworks++ == NGX_RL_MAX_NETWORKS) {
        return "at most 10000 networks";
    }

    client = ngx_rl_draft_client(draft, NGX_RL_CLIENT_NETWORK);
    if (client == NULL) {
        return "";
    }

    client->network = network;

    return NULL;
}


/* In nginx.conf a glob of one key stays one; documents know digests alone. */
const char *
ngx_rl_set_api_key(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    ngx_uint_t        hashed;
    ngx_rl_known_t  *client;

    if (ngx_rl_glob_check(text->data, text->len)) {
        return param->expected;
    }

    hashed = ngx_rl_policy_hashed(text);
    client = ngx_rl_draft_client(draft, hashed ? NGX_RL_CLIENT_KEY
                                               : NGX_RL_CLIENT_GLOB);
    if (client == NULL) {
        return "";
    }

    client->glob = *text;
    ngx_rl_policy_digest(text, client->digest);

    return NULL;
}


ngx_int_t
ngx_rl_draft_clients(ngx_rl_draft_t *draft)
{
    ngx_rl_clients_t  *set;

    if (draft->clients == NULL) {
        return NGX_OK;
    }

    set = ngx_pcalloc(draft->pool, sizeof(ngx_rl_clients_t));

    if (set == NULL
        || ngx_rl_clients_make(set, draft->clients->elts, draft->clients->nelts,
                               draft->pool)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    draft->rule.networks = set->networks;

    if (set->digests.entries || set->globs) {
        draft->rule.api_keys = set;
    }

    return NGX_OK;
}
