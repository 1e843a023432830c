/*
 * The conditions of a rule on headers, arguments and variables, whose values
 * the layer above reads; on the client's address and API key; and its active
 * times. A time zone is read once for each rule that names it. Bytes that the
 * core's reader refuses are an unknown zone, too.
 */

#include "ngx_rl_param.h"

#include "ngx_rl_hash.h"
#include "ngx_rl_policy.h"

#define NGX_RL_MAX_NETWORKS  10000   /* of a rule */
#define NGX_RL_TZ_FOLDER     "/usr/share/zoneinfo"


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
        client->value = NGX_RL_CLIENT_ALWAYS;
    }

    return client;
}


const char *
ngx_rl_set_network(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    ngx_rl_known_t    *client;
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
    ngx_uint_t       hashed;
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
    set->networks = NULL;

    if (set->digests.entries || set->globs) {
        draft->rule.api_keys = set;
    }

    return NGX_OK;
}


/* Returns the length, or -1. */
static ssize_t
ngx_rl_tz_file(const char *path, u_char *buf, size_t size)
{
    size_t    len;
    ssize_t   n;
    ngx_fd_t  fd;

    fd = open(path, O_RDONLY|O_NONBLOCK|O_CLOEXEC);
    if (fd == -1) {
        return -1;
    }

    n = 0;

    for (len = 0; len < size; len += (size_t) n) {
        n = read(fd, buf + len, size - len);

        if (n <= 0) {
            break;
        }
    }

    (void) close(fd);

    return (len && n == 0) ? (ssize_t) len : -1;
}


const char *
ngx_rl_tz_load(ngx_pool_t *pool, const ngx_str_t *name, const ngx_rl_tz_t **tz)
{
    u_char        path[sizeof(NGX_RL_TZ_FOLDER "/") + NGX_RL_TZ_NAME];
    u_char        buf[NGX_RL_TZ_FILE], *p;
    ssize_t       n;
    ngx_rl_tz_t  *read;

    static const u_char  zero[16];

    if (!ngx_rl_tz_name_valid(name->data, name->len)) {
        return "the name of a time zone, as in \"Europe/Berlin\"";
    }

    p = ngx_cpymem(path, NGX_RL_TZ_FOLDER "/",
                   sizeof(NGX_RL_TZ_FOLDER "/") - 1);
    *ngx_cpymem(p, name->data, name->len) = '\0';

    n = ngx_rl_tz_file((char *) path, buf, sizeof(buf));

    if (n < 0) {
        return "a time zone that is known here, in " NGX_RL_TZ_FOLDER
               " (package tzdata)";
    }

    read = ngx_palloc(pool, sizeof(ngx_rl_tz_t));
    if (read == NULL) {
        return "";
    }

    if (ngx_rl_tz_read(read, buf, (size_t) n, time(NULL)) != NULL) {
        return "a time zone whose file in " NGX_RL_TZ_FOLDER " can be read";
    }

    read->name = (uint32_t) ngx_rl_siphash(zero, name->data, name->len,
                                           1, 3).lo;
    *tz = read;

    return NULL;
}


/* As a member of a document; days may come one after the other. */
static const char *
ngx_rl_active_member(ngx_rl_draft_t *draft, ngx_rl_param_e id, u_char *text,
    size_t len)
{
    ngx_str_t              value;
    const ngx_rl_param_t  *param;

    if (id != NGX_RL_PARAM_ACTIVE_DAYS && (draft->says >> id & 1)) {
        return "one time and one time zone";
    }

    draft->says |= (uint64_t) 1 << id;

    value.data = text;
    value.len = len;
    param = ngx_rl_param(id, NGX_RL_OF_ACTIVE);

    return param->set(draft, param, &value);
}


/* "sat,sun,09:00-17:00,Europe/Berlin", each part of which may be missing */
const char *
ngx_rl_set_active(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    u_char          *item, *comma, *last;
    size_t           len;
    const char      *expected;
    ngx_rl_param_e   id;

    item = text->data;
    last = item + text->len;

    do {
        comma = text->len ? ngx_strlchr(item, last, ',') : NULL;
        len = (comma ? comma : last) - item;
        id = (len && *item >= 'a' && *item <= 'z') ? NGX_RL_PARAM_ACTIVE_DAYS
                                                   : NGX_RL_PARAM_ACTIVE_TZ;

        if (len && (*item < '0' || *item > '9')) {
            expected = ngx_rl_active_member(draft, id, item, len);

        } else if (len != 11 || item[5] != '-') {
            return param->expected;

        } else {
            expected = ngx_rl_active_member(draft, NGX_RL_PARAM_ACTIVE_FROM,
                                            item, 5);

            if (expected == NULL) {
                expected = ngx_rl_active_member(draft, NGX_RL_PARAM_ACTIVE_TO,
                                                item + 6, 5);
            }
        }

        item = comma ? comma + 1 : NULL;

    } while (comma && expected == NULL);

    return expected;
}


const char *
ngx_rl_set_active_days(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    return ngx_rl_week_days(text->data, text->len,
                            &draft->rule.active.days)
           ? param->expected : NULL;
}


const char *
ngx_rl_set_active_minute(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    uint32_t  minute;

    if (ngx_rl_week_minute(text->data, text->len, &minute) != 0
        || minute > param->max)
    {
        return param->expected;
    }

    return ngx_rl_param_number(draft, param, minute);
}


const char *
ngx_rl_set_active_tz(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    (void) param;

    return ngx_rl_tz_load(draft->pool, text, &draft->rule.active_tz);
}


/* A rule whose times have every minute of the week is not timed. */
void
ngx_rl_draft_active(ngx_rl_draft_t *draft)
{
    ngx_rl_rule_t         *rule;
    ngx_rl_week_t         *week;
    const ngx_rl_param_t  *param;

    rule = &draft->rule;
    week = &rule->active;

    if (week->days == 0) {
        week->days = NGX_RL_WEEK_ALL;
    }

    rule->timed = (week->days != NGX_RL_WEEK_ALL || week->from != 0
                   || week->to != NGX_RL_DAY_MINUTES);

    if (week->from != week->to) {
        return;
    }

    param = ngx_rl_param(NGX_RL_PARAM_ACTIVE_TO, draft->in);

    draft->wrong(draft,
                 param ? param : ngx_rl_param(NGX_RL_PARAM_ACTIVE, draft->in),
                 "", "two different times");
}
