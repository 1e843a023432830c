/*
 * The rows: each parameter of a rule. And how a draft takes a value, a text or
 * a number, as the row says.
 */

#include "ngx_rl_param.h"

#include "ngx_rl_hash.h"
#include "ngx_rl_route.h"
#include "ngx_rl_text.h"

#define NGX_RL_NAME  "1 to 64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\""

#define NGX_RL_TZ_FOLDER     "/usr/share/zoneinfo"

#define NGX_RL_MAX_NETWORKS  10000   /* of a rule */
#define NGX_RL_MAX_PRIORITY  1000000
#define NGX_RL_MAX_SECONDS                                                    \
    ((int64_t) (NGX_RL_MAX_PERIOD_US / 1000000))

#define NGX_RL_MAX_WHOLE     ((int64_t) 1 << 53)

/* algorithms: bits */
#define NGX_RL_TOKEN         NGX_RL_BIT(NGX_RL_TOKEN_BUCKET)
#define NGX_RL_LEAKY         NGX_RL_BIT(NGX_RL_LEAKY_BUCKET)
#define NGX_RL_FIXED         NGX_RL_BIT(NGX_RL_FIXED_WINDOW)
#define NGX_RL_SPLITS                                                         \
    (NGX_RL_TOKEN | NGX_RL_BIT(NGX_RL_FIXED_WINDOW)                           \
     | NGX_RL_BIT(NGX_RL_SLIDING_WINDOW))

/* directives, and the objects of a document */
#define NGX_RL_IN_BOTH  (NGX_RL_IN_ZONE|NGX_RL_IN_RULE)
#define NGX_RL_IN_ALL   (NGX_RL_IN_BOTH|NGX_RL_OF_RULE)
#define NGX_RL_OF_LIMIT                                                       \
    (NGX_RL_IN_BOTH|NGX_RL_OF_PARAMS)

#define NGX_RL_AT(member)                                                     \
    .offset = offsetof(ngx_rl_draft_t, member),                               \
    .size = sizeof(((ngx_rl_draft_t *) NULL)->member)
#define NGX_RL_RANGE(least, most)  .min = (least), .max = (most)

static const char *const  ngx_rl_switch_names[] = { "off", "on", NULL };

/* in the order of ngx_rl_sync_e and ngx_rl_fail_mode_e */

static const char *const  ngx_rl_sync_names[] = {
    "lease", "strict", "async", NULL
};

const char *const  ngx_rl_fail_mode_names[] = {
    "open", "local", "closed", NULL
};

static const char *const  ngx_rl_retry_names[] = { "growth", NULL };


void
ngx_rl_draft_init(ngx_rl_draft_t *draft, ngx_uint_t in,
    const ngx_rl_rule_t *rule, ngx_pool_t *pool)
{
    ngx_memzero(draft, sizeof(ngx_rl_draft_t));

    if (rule) {
        draft->rule = *rule;
    }

    draft->rule.cost = 1;
    draft->rule.percent = 100;
    draft->rule.active.to = NGX_RL_DAY_MINUTES;
    draft->pool = pool;
    draft->temp = pool;
    draft->in = in;
}


const ngx_rl_param_t *
ngx_rl_param(ngx_rl_param_e id, ngx_uint_t in)
{
    const ngx_rl_param_t  *p;

    for (p = ngx_rl_params; p->id; p++) {
        if (p->id == id && (p->in & in)) {
            return p;
        }
    }

    return NULL;
}


ngx_uint_t
ngx_rl_variables_in(const ngx_str_t *text)
{
    return text->len
           && ngx_strlchr(text->data, text->data + text->len, '$') != NULL;
}


const char *
ngx_rl_param_number(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    int64_t number)
{
    u_char       *place;
    uint32_t      narrow;
    ngx_uint_t   *item;
    ngx_array_t  *list;

    if (param->flags & NGX_RL_NOTE) {
        return NULL;
    }

    place = (u_char *) draft + param->offset;

    if (param->flags & NGX_RL_LIST) {
        ngx_memcpy(&list, place, sizeof(ngx_array_t *));

        if (list == NULL) {
            list = ngx_array_create(draft->pool, 4, sizeof(ngx_uint_t));
            ngx_memcpy(place, &list, sizeof(ngx_array_t *));
        }

        item = list ? ngx_array_push(list) : NULL;
        if (item == NULL) {
            return "";
        }

        *item = (ngx_uint_t) number;
        return NULL;
    }

    if (param->kind == NGX_RL_A_TIME) {
        draft->window_us = (uint64_t) number * 1000000;
        return NULL;
    }

    if (param->size == sizeof(uint32_t)) {
        narrow = (uint32_t) number;
        ngx_memcpy(place, &narrow, sizeof(uint32_t));

    } else {
        ngx_memcpy(place, &number, sizeof(int64_t));
    }

    return NULL;
}


/* The values that a parameter has, as text in the draft or a constant one. */
static const char *
ngx_rl_param_expected(ngx_rl_draft_t *draft, const ngx_rl_param_t *param)
{
    u_char  *p, *last;

    p = draft->text;
    last = draft->text + sizeof(draft->text) - 1;

    if (param->expected) {
        return param->expected;
    }

    if (param->kind == NGX_RL_A_NAME) {
        return NGX_RL_NAME;
    }

    if (param->kind == NGX_RL_A_CHOICE) {
        p = ngx_rl_names_write(p, last, param->names);

    } else {
        p = ngx_slprintf(p, last, "a whole number from %L to %L%s%s",
                         param->min, param->max,
                         (param->flags & NGX_RL_WORD)
                         ? ", \"unlimited\"" : "",
                         (param->flags & NGX_RL_VARIABLES)
                         ? ", or a text with variables" : "");
    }

    *p = '\0';

    return (const char *) draft->text;
}


/*
 * Reads the zone of that name, a file below /usr/share/zoneinfo, into the
 * pool's memory; for the configuration and for the thread that compiles a
 * document, since it waits for the disk. A zone is read once for each rule that
 * names it. Bytes that the core's reader refuses are an unknown zone, too.
 */
static const char *
ngx_rl_tz_load(ngx_pool_t *pool, const ngx_str_t *name, const ngx_rl_tz_t **tz)
{
    u_char        path[sizeof(NGX_RL_TZ_FOLDER "/") + NGX_RL_TZ_NAME];
    u_char        buf[NGX_RL_TZ_FILE], *p;
    size_t        len;
    ssize_t       n;
    ngx_fd_t      fd;
    ngx_rl_tz_t  *zone;

    static const u_char  zero[16];

    if (!ngx_rl_tz_name_valid(name->data, name->len)) {
        return "the name of a time zone, as in \"Europe/Berlin\"";
    }

    p = ngx_cpymem(path, NGX_RL_TZ_FOLDER "/",
                   sizeof(NGX_RL_TZ_FOLDER "/") - 1);
    *ngx_cpymem(p, name->data, name->len) = '\0';

    fd = open((char *) path, O_RDONLY|O_NONBLOCK|O_CLOEXEC);
    n = -1;

    for (len = 0; fd != -1 && len < sizeof(buf); len += (size_t) n) {
        n = read(fd, buf + len, sizeof(buf) - len);

        if (n <= 0) {
            break;
        }
    }

    if (fd != -1) {
        (void) close(fd);
    }

    if (len == 0 || n != 0) {
        return "a time zone that is known here, in " NGX_RL_TZ_FOLDER
               " (package tzdata)";
    }

    zone = ngx_palloc(pool, sizeof(ngx_rl_tz_t));
    if (zone == NULL) {
        return "";
    }

    if (ngx_rl_tz_read(zone, buf, len, time(NULL)) != NULL) {
        return "a time zone whose file in " NGX_RL_TZ_FOLDER " can be read";
    }

    zone->name = (uint32_t) ngx_rl_siphash(zero, name->data, name->len,
                                           1, 3).lo;
    *tz = zone;

    return NULL;
}


/* A choice, a number, a size or a time. */
static const char *
ngx_rl_param_parse(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    int         place;
    u_char      unit;
    int64_t     number;
    uint64_t    n;
    ngx_uint_t  minus, shift;

    /* another common name */

    static const ngx_str_t  counter = ngx_string("sliding_window_counter");

    /* in the order of ngx_rl_calendar_e */

    static const char *const  calendar[] = {
        "calendar:day", "calendar:month", "calendar:week", NULL };

    if (param->kind == NGX_RL_A_CHOICE) {
        number = ngx_rl_names_find(param->names, text->data, text->len);

        if (param->id == NGX_RL_PARAM_ALGORITHM
            && ngx_rl_equal(&counter, text))
        {
            number = NGX_RL_SLIDING_WINDOW;
        }

        return (number < 0)
               ? ngx_rl_param_expected(draft, param)
               : ngx_rl_param_number(draft, param, param->min + number);
    }

    if (param->kind == NGX_RL_A_TIME) {
        place = ngx_rl_names_find(calendar, text->data, text->len);

        if (place >= 0) {
            draft->calendar = (ngx_rl_calendar_e) (NGX_RL_CALENDAR_DAY + place);
            return NULL;
        }

        number = text->len ? ngx_parse_time(text, 1) : NGX_ERROR;

        return (number < param->min || number > param->max)
               ? param->expected : ngx_rl_param_number(draft, param, number);
    }

    unit = (param->kind == NGX_RL_A_SIZE && text->len)
           ? ngx_tolower(text->data[text->len - 1]) : '\0';
    shift = (unit == 'k') ? 10 : (unit == 'm') ? 20 : (unit == 'g') ? 30 : 0;
    minus = (param->min < 0 && text->len && text->data[0] == '-');

    if (ngx_rl_number_parse(text->data + minus,
                            text->len - minus - (shift != 0), 0,
                            (uint64_t) param->max >> shift, &n)
        != 0)
    {
        return ngx_rl_param_expected(draft, param);
    }

    number = minus ? -(int64_t) n : (int64_t) (n << shift);

    return (number < param->min)
           ? ngx_rl_param_expected(draft, param)
           : ngx_rl_param_number(draft, param, number);
}


/*
 * A rate, a word for a limit in its place (ngx_rl_limit_word()), or one of 0
 * requests, which is the word, too. Returns NULL, or what was expected.
 */
static const char *
ngx_rl_rule_rate(const ngx_str_t *text, uint64_t *tokens, uint64_t *period_us)
{
    const char  *expected;

    *tokens = ngx_rl_limit_word(text->data, text->len);

    if (*tokens) {
        return NULL;
    }

    expected = ngx_rl_rate_parse(text->data, text->len, tokens, period_us);

    if (expected == NULL && *tokens == 0) {
        *tokens = NGX_RL_TOKENS_NONE;
    }

    return expected;
}


const char *
ngx_rl_rule_spec(const ngx_rl_spec_t *spec, const ngx_str_t *text,
    ngx_rl_spec_t *made)
{
    *made = *spec;

    if (spec->period_us || spec->calendar
        || spec->algorithm == NGX_RL_CONCURRENCY)
    {
        made->tokens = ngx_rl_limit_word(text->data, text->len);

        if (made->tokens == 0
            && ngx_rl_number_parse(text->data, text->len, 1, NGX_RL_MAX_TOKENS,
                                   &made->tokens)
               != 0)
        {
            return "a number from 0 to 1073741824, or \"unlimited\"";
        }

        return NULL;
    }

    return ngx_rl_rule_rate(text, &made->tokens, &made->period_us);
}


const char *
ngx_rl_param_text(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    u_char             *place;
    const char         *expected;
    const ngx_rl_tz_t  *tz;

    place = (u_char *) draft + param->offset;

    if (ngx_rl_variables_in(text)) {

        /* they are compiled when all is known */

        if (param->id == NGX_RL_PARAM_COST) {
            draft->cost_text = *text;
            draft->rule.dynamic_cost = 1;
            return NULL;
        }

        if (param->flags & NGX_RL_VARIABLES) {
            draft->limit_text = *text;
            draft->rule.dynamic = 1;
            return NULL;
        }

        if ((param->flags & NGX_RL_CONSTANT) && (draft->in & NGX_RL_IN_CONF)) {
            return param->expected;
        }

    } else if (param->flags & NGX_RL_VARYING) {
        return param->expected;
    }

    if ((param->flags & NGX_RL_WORD)
        && ngx_rl_limit_word(text->data, text->len) == NGX_RL_TOKENS_ANY)
    {
        return ngx_rl_param_number(draft, param, (int64_t) NGX_RL_TOKENS_ANY);
    }

    if (param->flags & NGX_RL_NOTE) {
        return (text->len && text->len <= param->size) ? NULL : param->expected;
    }

    switch (param->kind) {

    case NGX_RL_A_NUMBER:
    case NGX_RL_A_CHOICE:
    case NGX_RL_A_SIZE:
    case NGX_RL_A_TIME:
        return ngx_rl_param_parse(draft, param, text);

    case NGX_RL_A_RATE:
        return ngx_rl_rule_rate(text, &draft->tokens, &draft->period_us);

    case NGX_RL_A_TZ:
        expected = ngx_rl_tz_load(draft->pool, text, &tz);

        if (expected == NULL) {
            ngx_memcpy(place, &tz, sizeof(ngx_rl_tz_t *));
        }

        return expected;

    case NGX_RL_A_NAME:
        if (!ngx_rl_name_valid(text->data, text->len)) {
            return NGX_RL_NAME;
        }

        break;

    default:
        if (param->set == NULL && text->len == 0) {
            return param->expected;
        }
    }

    if (param->set) {
        return param->set(draft, param, text);
    }

    ngx_memcpy(place, text, sizeof(ngx_str_t));

    return NULL;
}


int64_t
ngx_rl_param_stored(const ngx_rl_draft_t *draft, const ngx_rl_param_t *param)
{
    int64_t        number;
    uint32_t       narrow;
    const u_char  *place;

    place = (const u_char *) draft + param->offset;

    if (param->size == sizeof(uint32_t)) {
        ngx_memcpy(&narrow, place, sizeof(uint32_t));
        return narrow;
    }

    ngx_memcpy(&number, place, sizeof(int64_t));

    return number;
}


ngx_uint_t
ngx_rl_key_constant(const ngx_str_t *key)
{
    return !ngx_rl_variables_in(key)
           && !(key->len == 3 && ngx_strncmp(key->data, "all", 3) == 0);
}


ngx_uint_t
ngx_rl_names(const ngx_str_t *text, const char *name)
{
    size_t  i, len;

    len = ngx_strlen(name);

    for (i = 0; i + len <= text->len; i++) {
        if (ngx_strncasecmp(text->data + i, (u_char *) name, len) == 0) {
            return 1;
        }
    }

    return 0;
}


/* A rate as a limit of its own. */
static const char *
ngx_rl_set_bucket(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    const char      *expected;
    ngx_rl_spec_t    spec;
    ngx_rl_limit_t  *limit;

    if (ngx_rl_variables_in(text)) {
        return param->expected;
    }

    limit = ngx_palloc(draft->pool, sizeof(ngx_rl_limit_t));
    if (limit == NULL) {
        return "";
    }

    ngx_memzero(&spec, sizeof(ngx_rl_spec_t));
    spec.algorithm = NGX_RL_TOKEN_BUCKET;
    ngx_memcpy((u_char *) draft + param->offset, &limit,
               sizeof(ngx_rl_limit_t *));

    expected = ngx_rl_rate_parse(text->data, text->len, &spec.tokens,
                                 &spec.period_us);

    return expected ? expected : ngx_rl_limit_init(limit, &spec);
}


static const char *
ngx_rl_set_cost_header(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    ngx_str_t  *header;

    header = &draft->rule.cost_header;

    header->data = ngx_pnalloc(draft->pool, text->len);
    if (header->data == NULL) {
        return "";
    }

    header->len = text->len;
    ngx_strlow(header->data, text->data, text->len);

    return NULL;
}


/* A part, which has not what stands between parts. */
static const char *
ngx_rl_set_key(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    ngx_rl_rule_t  *rule;

    rule = &draft->rule;

    if (text->len == 0
        || ngx_strlchr(text->data, text->data + text->len, NGX_RL_PART_END))
    {
        return "a value with variables";
    }

    if (rule->nparts == NGX_RL_MAX_PARTS) {
        return "at most 8 parts";
    }

    if (rule->parts == NULL) {
        rule->parts = ngx_palloc(draft->pool, NGX_RL_MAX_PARTS
                                              * sizeof(ngx_str_t));
        if (rule->parts == NULL) {
            return "";
        }
    }

    rule->parts[rule->nparts++] = *text;

    return NULL;
}


/*
 * "/path", "~regular expression", "~*regular expression"; documents have two
 * members. An expression is compiled later: by ngx_rl_policy_finish(), by
 * rule_conf.c.
 */
static const char *
ngx_rl_set_match(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    u_char      *last;
    const char  *wrong;

    if (param->id == NGX_RL_PARAM_REGEX
        || (param->conf && text->len && text->data[0] == '~'))
    {
#if (NGX_PCRE)
        draft->rule.regex_text = *text;
        return text->len ? NULL : param->expected;
#else
        return "a path template: this nginx is built without PCRE";
#endif
    }

    wrong = ngx_rl_route_check(text->data, text->len);

    if (wrong == NULL) {
        draft->rule.route = *text;
        return NULL;
    }

    last = ngx_slprintf(draft->text, draft->text + sizeof(draft->text) - 1,
                        "a path template: %s", wrong);
    *last = '\0';

    return (const char *) draft->text;
}


static const char *
ngx_rl_set_method(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    ngx_uint_t  bit;

    bit = draft->above->method(text->data, text->len);
    draft->rule.methods |= bit;

    return bit ? NULL : param->expected;
}


ngx_uint_t
ngx_rl_tier_valid(const ngx_str_t *tier)
{
    size_t  i;

    for (i = 0; i < tier->len; i++) {
        if (tier->data[i] < ' ' || tier->data[i] == '$') {
            return 0;
        }
    }

    return tier->len && tier->len <= 64;
}


/* nginx.conf may have others: what $variables of "ratelimit_tier" may say. */
static const char *
ngx_rl_set_tier(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    if (text->len == 0
        || (!(draft->in & NGX_RL_IN_CONF) && !ngx_rl_tier_valid(text)))
    {
        return param->expected;
    }

    draft->rule.tier = *text;

    return NULL;
}


/* In lower case, as nginx has the request's. */
static const char *
ngx_rl_set_host(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    ngx_rl_glob_text_t  *host;

    if (text->len == 0 || ngx_rl_glob_check(text->data, text->len)) {
        return param->expected;
    }

    if (draft->hosts == NULL) {
        draft->hosts = ngx_array_create(draft->pool, 2,
                                        sizeof(ngx_rl_glob_text_t));
    }

    host = draft->hosts ? ngx_array_push(draft->hosts) : NULL;
    if (host == NULL) {
        return "";
    }

    ngx_strlow(text->data, text->data, text->len);
    host->data = text->data;
    host->len = text->len;

    draft->rule.hosts = draft->hosts->elts;
    draft->rule.nhosts = draft->hosts->nelts;

    return NULL;
}


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


/* "name:glob", or a text with variables */
static const char *
ngx_rl_set_condition(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    u_char              *colon, *last, ch;
    ngx_uint_t           i;
    ngx_rl_condition_t   condition;

    ngx_memzero(&condition, sizeof(ngx_rl_condition_t));

    condition.kind = (ngx_rl_condition_e) (param->id - NGX_RL_PARAM_HEADER);
    condition.name = *text;

    if (condition.kind == NGX_RL_IF_VALUE) {
        return ngx_rl_condition_add(draft, &condition);
    }

    last = text->data + text->len;
    colon = text->len ? ngx_strlchr(text->data, last, ':') : NULL;

    if (colon == NULL) {
        return param->expected;
    }

    condition.name.len = colon - text->data;
    condition.glob.data = colon + 1;
    condition.glob.len = last - condition.glob.data;

    if (condition.name.len < 1 || condition.name.len > 64
        || ngx_rl_glob_check(condition.glob.data, condition.glob.len))
    {
        return param->expected;
    }

    /* a header's name is one that a variable may have */

    for (i = 0; i < condition.name.len; i++) {
        ch = condition.name.data[i];

        if (condition.kind == NGX_RL_IF_HEADER && ch != '-' && ch != '_'
            && !(ch >= '0' && ch <= '9')
            && !((ch | 0x20) >= 'a' && (ch | 0x20) <= 'z'))
        {
            return param->expected;
        }
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


static const char *
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
static const char *
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

    value = ngx_rl_str(text, len);
    param = ngx_rl_param(id, NGX_RL_OF_ACTIVE);

    return ngx_rl_param_text(draft, param, &value);
}


/* "sat,sun,09:00-17:00,Europe/Berlin", each part of which may be missing */
static const char *
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


static const char *
ngx_rl_set_active_days(ngx_rl_draft_t *draft, const ngx_rl_param_t *param,
    ngx_str_t *text)
{
    return ngx_rl_week_days(text->data, text->len,
                            &draft->rule.active.days)
           ? param->expected : NULL;
}


static const char *
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


/* "id" first, so that its problem comes first */

/* NOLINTBEGIN(bugprone-sizeof-expression): a pointer's own size is meant */
const ngx_rl_param_t  ngx_rl_params[] = {
    { NGX_RL_PARAM_ZONE, "zone=", NULL, NGX_RL_IN_CONF, NGX_RL_A_TEXT,
      NGX_RL_AT(zone), .expected = "the name of a zone" },
    { NGX_RL_PARAM_ID, "rule=", NULL, NGX_RL_IN_LIMIT, NGX_RL_A_TEXT,
      NGX_RL_AT(rule.id), .expected = "the name of a rule" },
    { NGX_RL_PARAM_LOOK, "look", NULL, NGX_RL_IN_LIMIT, NGX_RL_A_FLAG,
      NGX_RL_AT(look), NGX_RL_RANGE(0, 1) },
    { NGX_RL_PARAM_ID, NULL, "id", NGX_RL_OF_RULE, NGX_RL_A_NAME,
      NGX_RL_AT(rule.id), .standard = "must be there" },
    { NGX_RL_PARAM_REDIS, "redis=", NULL, NGX_RL_IN_ZONE, NGX_RL_A_TEXT,
      NGX_RL_AT(redis), .expected = "the name of a \"ratelimit_redis\"" },
    { NGX_RL_PARAM_PEERS, "peers=", NULL, NGX_RL_IN_ZONE, NGX_RL_A_TEXT,
      NGX_RL_AT(peers), .expected = "the name of a \"ratelimit_peers\"" },
    { NGX_RL_PARAM_STATE, "state=", NULL, NGX_RL_IN_ZONE, NGX_RL_A_TEXT,
      NGX_RL_AT(state), .expected = "a file" },
    { NGX_RL_PARAM_CLEAR, "keys_in_clear=", NULL, NGX_RL_IN_ZONE,
      NGX_RL_A_CHOICE, NGX_RL_AT(clear), .names = ngx_rl_switch_names },
    { NGX_RL_PARAM_NEW_KEYS, "new_keys=", NULL, NGX_RL_IN_ZONE, NGX_RL_A_TEXT,
      NGX_RL_AT(new_keys), .set = ngx_rl_set_bucket,
      .expected = "a rate without variables" },

    /* how much */

    { NGX_RL_PARAM_ALGORITHM, "algorithm=", "algorithm", NGX_RL_IN_ALL,
      NGX_RL_A_CHOICE, NGX_RL_AT(rule.spec.algorithm),
      .names = ngx_rl_algorithm_names, .standard = "token_bucket" },
    { NGX_RL_PARAM_PARAMS, NULL, "params", NGX_RL_OF_RULE, NGX_RL_AN_OBJECT,
      .standard = "must be there" },
    { NGX_RL_PARAM_RATE, "rate=", "rate", NGX_RL_OF_LIMIT, NGX_RL_A_RATE,
      .flags = NGX_RL_VARIABLES, .algorithms = NGX_RL_RATES,
      .expected = "a rate, as in \"100r/m\", or \"unlimited\"" },
    { NGX_RL_PARAM_LIMIT, "limit=", "limit", NGX_RL_OF_LIMIT|NGX_RL_OF_AMOUNT,
      NGX_RL_A_NUMBER, .flags = NGX_RL_VARIABLES|NGX_RL_WORD, NGX_RL_AT(limit),
      NGX_RL_RANGE(0, NGX_RL_MAX_TOKENS) },
    { NGX_RL_PARAM_WINDOW, "window=", "window",
      NGX_RL_OF_LIMIT|NGX_RL_OF_AMOUNT, NGX_RL_A_TIME, NGX_RL_AT(calendar),
      .algorithms = NGX_RL_RATES, NGX_RL_RANGE(1, NGX_RL_MAX_SECONDS),
      .expected = "a time from 1s to 366d in whole seconds, \"calendar:day\", "
      "\"calendar:week\" or \"calendar:month\"" },
    { NGX_RL_PARAM_TZ, "tz=", "tz", NGX_RL_OF_LIMIT, NGX_RL_A_TZ,
      NGX_RL_AT(rule.spec.tz), .algorithms = NGX_RL_FIXED,
      .expected = "the name of a time zone, as in \"Europe/Berlin\"",
      .standard = "UTC" },
    { NGX_RL_PARAM_MONTH_DAY, "month_day=", "month_day", NGX_RL_OF_LIMIT,
      NGX_RL_A_NUMBER, NGX_RL_AT(rule.spec.month_day),
      .algorithms = NGX_RL_FIXED, NGX_RL_RANGE(1, 31), .standard = "1" },
    { NGX_RL_PARAM_CAPACITY, "capacity=", NULL, NGX_RL_IN_BOTH, NGX_RL_A_NUMBER,
      NGX_RL_AT(capacity), .algorithms = NGX_RL_TOKEN,
      NGX_RL_RANGE(1, NGX_RL_MAX_TOKENS), .standard = "the limit" },
    { NGX_RL_PARAM_CAPACITY, NULL, "capacity",
      NGX_RL_OF_PARAMS|NGX_RL_OF_AMOUNT, NGX_RL_A_NUMBER, NGX_RL_AT(capacity),
      NGX_RL_RANGE(1, NGX_RL_MAX_TOKENS), .standard = "the limit" },
    { NGX_RL_PARAM_REFILL_RATE, NULL, "refill_rate",
      NGX_RL_OF_PARAMS|NGX_RL_OF_AMOUNT, NGX_RL_A_REAL,
      .algorithms = NGX_RL_RATES,
      .expected = "from 1 in 366 days to 1073741824, in requests a second" },
    { NGX_RL_PARAM_BURST, "burst=", "burst", NGX_RL_OF_LIMIT|NGX_RL_IN_LIMIT,
      NGX_RL_A_NUMBER, NGX_RL_AT(rule.spec.burst), .algorithms = NGX_RL_LEAKY,
      NGX_RL_RANGE(0, NGX_RL_MAX_TOKENS - 1), .standard = "0" },
    { NGX_RL_PARAM_NODELAY, "nodelay", "nodelay",
      NGX_RL_OF_LIMIT|NGX_RL_IN_LIMIT, NGX_RL_A_FLAG,
      NGX_RL_AT(rule.spec.nodelay), .algorithms = NGX_RL_LEAKY,
      NGX_RL_RANGE(0, 1), .standard = "off" },
    { NGX_RL_PARAM_DELAY, "delay=", "delay", NGX_RL_OF_LIMIT|NGX_RL_IN_LIMIT,
      NGX_RL_A_NUMBER, NGX_RL_AT(rule.spec.delay), .algorithms = NGX_RL_LEAKY,
      NGX_RL_RANGE(0, NGX_RL_MAX_TOKENS - 1), .standard = "0" },

    /* how it counts */

    { NGX_RL_PARAM_SYNC, "sync=", "sync", NGX_RL_IN_ALL, NGX_RL_A_CHOICE,
      .flags = NGX_RL_SHARED, NGX_RL_AT(rule.sync), .names = ngx_rl_sync_names,
      .standard = "lease" },
    { NGX_RL_PARAM_SHARDS, "shards=", "shards", NGX_RL_IN_ALL, NGX_RL_A_NUMBER,
      .flags = NGX_RL_SHARED, NGX_RL_AT(rule.shards),
      .algorithms = NGX_RL_SPLITS, NGX_RL_RANGE(2, NGX_RL_MAX_SHARDS),
      .standard = "not split" },
    { NGX_RL_PARAM_FAIL_MODE, "fail_mode=", "fail_mode", NGX_RL_IN_ALL,
      NGX_RL_A_CHOICE, .flags = NGX_RL_SHARED, NGX_RL_AT(rule.fail_mode),
      .names = ngx_rl_fail_mode_names, .min = NGX_RL_FAIL_OPEN,
      .standard = "`ratelimit_fail_mode`" },
    { NGX_RL_PARAM_EMERGENCY, "emergency=", "emergency", NGX_RL_IN_ALL,
      NGX_RL_A_TEXT, .flags = NGX_RL_CONSTANT|NGX_RL_SHARED,
      NGX_RL_AT(rule.emergency), .set = ngx_rl_set_bucket,
      .expected = "a rate without variables", .standard = "none" },
    { NGX_RL_PARAM_REGIONS, "regions=", "regions", NGX_RL_IN_ALL,
      NGX_RL_A_NUMBER, .flags = NGX_RL_SHARED, NGX_RL_AT(rule.regions),
      NGX_RL_RANGE(2, NGX_RL_MAX_REGIONS), .standard = "the whole limit" },
    { NGX_RL_PARAM_DRY_RUN, "dry_run", "dry_run", NGX_RL_IN_ALL, NGX_RL_A_FLAG,
      NGX_RL_AT(rule.dry_run), NGX_RL_RANGE(0, 1), .standard = "off" },
    { NGX_RL_PARAM_COST, "cost=", "cost", NGX_RL_IN_ALL, NGX_RL_A_NUMBER,
      .flags = NGX_RL_VARIABLES|NGX_RL_QUIET, NGX_RL_AT(rule.cost),
      .algorithms = NGX_RL_RATES, NGX_RL_RANGE(0, NGX_RL_MAX_TOKENS),
      .standard = "1" },
    { NGX_RL_PARAM_COST_HEADER, "cost_header=", "cost_header", NGX_RL_IN_ALL,
      NGX_RL_A_NAME, NGX_RL_AT(rule.cost_header), .algorithms = NGX_RL_RATES,
      .set = ngx_rl_set_cost_header, .standard = "none" },
    { NGX_RL_PARAM_COST_END, "cost_end=", "cost_end", NGX_RL_IN_ALL,
      NGX_RL_A_TEXT, .flags = NGX_RL_VARYING, NGX_RL_AT(rule.cost_end),
      .algorithms = NGX_RL_RATES, .expected = "a text with variables",
      .standard = "none" },
    { NGX_RL_PARAM_COST_EVERY, "cost_every=", "cost_every", NGX_RL_IN_ALL,
      NGX_RL_A_SIZE, NGX_RL_AT(rule.cost_every), .algorithms = NGX_RL_RATES,
      NGX_RL_RANGE(64 * 1024, 1024 * 1024 * 1024),
      .expected = "a size from 64k to 1g",
      .standard = "at the end" },
    { NGX_RL_PARAM_COUNT_STATUS, "count_status=", "count_status", NGX_RL_IN_ALL,
      NGX_RL_A_NUMBER, .flags = NGX_RL_LIST|NGX_RL_FILLED,
      NGX_RL_AT(rule.statuses), .algorithms = NGX_RL_RATES,
      NGX_RL_RANGE(100, 599), .expected = "statuses from 100 to 599",
      .standard = "every response" },
    { NGX_RL_PARAM_RETRY, "retry=", "retry", NGX_RL_IN_ALL, NGX_RL_A_CHOICE,
      NGX_RL_AT(rule.retry_growth), .names = ngx_rl_retry_names,
      .algorithms = NGX_RL_RATES, .min = 1,
      .standard = "the wait is the same" },
    { NGX_RL_PARAM_GROUP, "group=", "group", NGX_RL_IN_ALL, NGX_RL_A_NAME,
      NGX_RL_AT(rule.group), .standard = "none" },
    { NGX_RL_PARAM_PRIORITY, "priority=", "priority", NGX_RL_IN_ALL,
      NGX_RL_A_NUMBER, NGX_RL_AT(rule.priority),
      NGX_RL_RANGE(-NGX_RL_MAX_PRIORITY, NGX_RL_MAX_PRIORITY),
      .standard = "0" },
    { NGX_RL_PARAM_PERCENT, "percent=", "percent", NGX_RL_IN_ALL,
      NGX_RL_A_NUMBER, NGX_RL_AT(rule.percent), NGX_RL_RANGE(1, 100),
      .standard = "100" },
    { NGX_RL_PARAM_KEY, "key=", NULL, NGX_RL_IN_RULE, NGX_RL_A_TEXT,
      NGX_RL_AT(rule.key), .expected = "a value with variables",
      .standard = "the zone's key" },
    { NGX_RL_PARAM_KEY, NULL, "key", NGX_RL_OF_RULE, NGX_RL_A_TEXT,
      .flags = NGX_RL_LIST|NGX_RL_FILLED, NGX_RL_AT(rule.parts),
      .set = ngx_rl_set_key, .expected = "1 to 8 parts",
      .standard = "the zone's key" },

    /* which requests */

    { NGX_RL_PARAM_MATCH, NULL, "match", NGX_RL_OF_RULE, NGX_RL_AN_OBJECT,
      .standard = "every request" },
    { NGX_RL_PARAM_ROUTE, "match=", NULL, NGX_RL_IN_RULE, NGX_RL_A_TEXT,
      NGX_RL_AT(rule.route), .set = ngx_rl_set_match,
      .expected = "a path template, or \"~\" and a regular expression",
      .standard = "every path" },
    { NGX_RL_PARAM_ROUTE, NULL, "route", NGX_RL_OF_MATCH, NGX_RL_A_TEXT,
      NGX_RL_AT(rule.route), .set = ngx_rl_set_match,
      .expected = "a path template", .standard = "every path" },
    { NGX_RL_PARAM_REGEX, NULL, "endpoint_regex", NGX_RL_OF_MATCH,
      NGX_RL_A_TEXT, NGX_RL_AT(rule.regex_text), .set = ngx_rl_set_match,
      .expected = "a regular expression", .standard = "every path" },
    { NGX_RL_PARAM_METHODS, "methods=", "methods",
      NGX_RL_IN_RULE|NGX_RL_OF_MATCH, NGX_RL_A_TEXT, .flags = NGX_RL_LIST,
      NGX_RL_AT(rule.methods), .set = ngx_rl_set_method,
      .expected = "HTTP methods like \"GET\"", .standard = "every method" },
    { NGX_RL_PARAM_TIER, "tier=", "tier",
      NGX_RL_IN_RULE|NGX_RL_OF_MATCH|NGX_RL_OF_RULE, NGX_RL_A_TEXT,
      .flags = NGX_RL_CONSTANT, NGX_RL_AT(rule.tier), .set = ngx_rl_set_tier,
      .expected = "the name of a tier: 1 to 64 bytes without variables and "
      "control characters", .standard = "every tier" },
    { NGX_RL_PARAM_HOST, "host=", "host", NGX_RL_IN_RULE|NGX_RL_OF_MATCH,
      NGX_RL_A_TEXT, .flags = NGX_RL_LIST|NGX_RL_CONSTANT,
      NGX_RL_AT(rule.hosts), .set = ngx_rl_set_host,
      .expected = "host names like \"api.example.com\" or \"*.example.org\", "
      "without variables", .standard = "every host" },
    { NGX_RL_PARAM_API_KEY, "api_key=", "api_key_pattern",
      NGX_RL_IN_RULE|NGX_RL_OF_MATCH, NGX_RL_A_TEXT,
      .flags = NGX_RL_LIST|NGX_RL_CONSTANT, NGX_RL_AT(rule.api_keys),
      .set = ngx_rl_set_api_key,
      .expected = "API keys like \"sk_live_*\" or \"sk_test_1\", with \"*\" "
      "and \"?\" for any text and any character, without variables",
      .standard = "every request" },
    { NGX_RL_PARAM_NETWORK, "network=", "network",
      NGX_RL_IN_RULE|NGX_RL_OF_MATCH, NGX_RL_A_TEXT, .flags = NGX_RL_LIST,
      NGX_RL_AT(rule.networks), .set = ngx_rl_set_network,
      .expected = "addresses and networks like \"192.0.2.1\" or "
      "\"2001:db8::/32\"", .standard = "every request" },
    { NGX_RL_PARAM_HEADER, "header=", "header", NGX_RL_IN_RULE|NGX_RL_OF_MATCH,
      NGX_RL_A_TEXT, .flags = NGX_RL_LIST|NGX_RL_CONSTANT,
      NGX_RL_AT(rule.conditions), .set = ngx_rl_set_condition,
      .expected = "a header and a glob of its value like \"X-Client:bot*\", "
      "without variables", .standard = "every request" },
    { NGX_RL_PARAM_ARG, "arg=", "arg", NGX_RL_IN_RULE|NGX_RL_OF_MATCH,
      NGX_RL_A_TEXT, .flags = NGX_RL_LIST|NGX_RL_CONSTANT,
      NGX_RL_AT(rule.conditions), .set = ngx_rl_set_condition,
      .expected = "a query argument and a glob of its value like "
      "\"mode:full*\", without variables", .standard = "every request" },
    { NGX_RL_PARAM_IF, "if=", "if", NGX_RL_IN_RULE|NGX_RL_OF_MATCH,
      NGX_RL_A_TEXT, .flags = NGX_RL_VARYING, NGX_RL_AT(rule.conditions),
      .set = ngx_rl_set_condition,
      .expected = "a value with variables", .standard = "every request" },
    { NGX_RL_PARAM_ACTIVE, "active=", "active", NGX_RL_IN_RULE|NGX_RL_OF_RULE,
      NGX_RL_AN_OBJECT, .set = ngx_rl_set_active,
      .expected = "days, times and a time zone like "
      "\"mon-fri,09:00-17:00,Europe/Berlin\"", .standard = "always" },
    { NGX_RL_PARAM_ACTIVE_DAYS, NULL, "days", NGX_RL_OF_ACTIVE, NGX_RL_A_TEXT,
      .set = ngx_rl_set_active_days,
      .expected = "days like \"mon-fri\" or \"sat,sun\"",
      .standard = "every day" },
    { NGX_RL_PARAM_ACTIVE_FROM, NULL, "from", NGX_RL_OF_ACTIVE, NGX_RL_A_TEXT,
      NGX_RL_AT(rule.active.from), NGX_RL_RANGE(0, NGX_RL_DAY_MINUTES - 1),
      .set = ngx_rl_set_active_minute,
      .expected = "a time from \"00:00\" to \"23:59\"", .standard = "00:00" },
    { NGX_RL_PARAM_ACTIVE_TO, NULL, "to", NGX_RL_OF_ACTIVE, NGX_RL_A_TEXT,
      NGX_RL_AT(rule.active.to), NGX_RL_RANGE(0, NGX_RL_DAY_MINUTES),
      .set = ngx_rl_set_active_minute,
      .expected = "a time from \"00:00\" to \"24:00\"", .standard = "24:00" },
    { NGX_RL_PARAM_ACTIVE_TZ, NULL, "tz", NGX_RL_OF_ACTIVE, NGX_RL_A_TZ,
      NGX_RL_AT(rule.active_tz),
      .expected = "the name of a time zone, as in \"Europe/Berlin\"",
      .standard = "UTC" },

    /* other limits */

    { NGX_RL_PARAM_TIER_LIMITS, "tiers=", NULL, NGX_RL_IN_RULE, NGX_RL_A_TEXT,
      .flags = NGX_RL_CONSTANT, NGX_RL_AT(tier_limits),
      .expected = "\"<tier>:<limit or rate>\", with commas between, without "
      "variables", .standard = "none" },
    { NGX_RL_PARAM_TIER_LIMITS, NULL, "tiers", NGX_RL_OF_RULE, NGX_RL_AN_OBJECT,
      .expected = "amounts, by tier", .standard = "none" },
    { NGX_RL_PARAM_KEY_LIMITS, NULL, "limits_by_api_key", NGX_RL_OF_RULE,
      NGX_RL_AN_OBJECT, .expected = "amounts, by API key", .standard = "none" },
    { NGX_RL_PARAM_OWN_LIMITS, NULL, "limits_by_key", NGX_RL_OF_RULE,
      NGX_RL_AN_OBJECT, .expected = "amounts, by value of the key",
      .standard = "none" },

    /* what the document keeps of a rule, and no request needs */

    { NGX_RL_PARAM_ENABLED, NULL, "enabled", NGX_RL_OF_RULE, NGX_RL_A_FLAG,
      .standard = "on" },
    { NGX_RL_PARAM_DESCRIPTION, NULL, "description", NGX_RL_OF_RULE,
      NGX_RL_A_TEXT, .flags = NGX_RL_NOTE, .size = 1024,
      .expected = "a text of 1 to 1024 bytes", .standard = "none" },
    { NGX_RL_PARAM_LABELS, NULL, "labels", NGX_RL_OF_RULE, NGX_RL_AN_OBJECT,
      .flags = NGX_RL_NOTE, .size = 256,
      .expected = "texts of 1 to 256 bytes, by name", .standard = "none" },
    { NGX_RL_PARAM_OWNER, NULL, "owner", NGX_RL_OF_RULE, NGX_RL_A_TEXT,
      .flags = NGX_RL_NOTE, .size = 256, .expected = "a text of 1 to 256 bytes",
      .standard = "none" },
    { NGX_RL_PARAM_VERSION, NULL, "version", NGX_RL_OF_RULE, NGX_RL_A_TAG,
      .flags = NGX_RL_NOTE, .size = 64, NGX_RL_RANGE(0, NGX_RL_MAX_WHOLE),
      .expected = "a text of 1 to 64 bytes, or a whole number from 0 to 2^53",
      .standard = "none" },
    { .id = NGX_RL_PARAM_NONE }
};
/* NOLINTEND(bugprone-sizeof-expression) */
