/*
 * The rows of a rule's parameters: they are consistent, and the tables in the
 * reference and the schemas of the endpoint say what they say. Where a page
 * differs, the test prints the block that belongs there.
 */

#include <ngx_config.h>
#include <ngx_core.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "nginx_text.h"

#include "ngx_rl_param.h"

static char  block[65536], *end;


static void
say(const char *format, ...)
{
    va_list  args;

    va_start(args, format);
    end += vsprintf(end, format, args);
    va_end(args);
}


/* Of a message: what it has in double quotes, between other ones. */
static void
quoted(const char *text, const char *quote)
{
    for ( /* void */ ; *text; text++) {
        say(*text == '"' ? quote : *text == '\'' ? "''" : "%c", *text);
    }
}


/* What a parameter may be. */
static void
value(const ngx_rl_param_t *p, const char *quote)
{
    const char *const  *name;

    if (p->expected) {
        quoted(p->expected, quote);

    } else if (p->kind == NGX_RL_A_FLAG) {
        say("a flag");

    } else if (p->kind == NGX_RL_A_NAME) {
        say("a name");

    } else if (p->kind == NGX_RL_A_NUMBER) {
        say("%ld to %ld", (long) p->min, (long) p->max);

    } else if (p->names) {
        for (name = p->names; *name; name++) {
            say("%s%s%s%s", name == p->names ? "" : ", ", quote, *name, quote);
        }

    } else {
        say("an object");
    }

    if (p->flags & NGX_RL_WORD) {
        say(", or %sunlimited%s", quote, quote);
    }

    if (p->flags & NGX_RL_VARIABLES) {
        say("; or text with variables");
    }

    if (p->flags & NGX_RL_LIST) {
        say("; one or several");
    }
}


static void
algorithms(ngx_uint_t bits)
{
    ngx_uint_t rest = bits ? ~bits & 0x3f : 0;
    const char *before = "";

    if (rest == 0) {
        say("all");
        return;
    }

    if ((rest & (rest - 1)) == 0) {
        say("all but `%s`",
            ngx_rl_algorithm_names[__builtin_ctz((unsigned) rest)]);
        return;
    }

    for (ngx_uint_t i = 0; ngx_rl_algorithm_names[i]; i++) {
        if (bits >> i & 1) {
            say("%s`%s`", before, ngx_rl_algorithm_names[i]);
            before = ", ";
        }
    }
}


/* As nginx.conf has it, unless it is in documents alone. */
static void
name(ngx_rl_param_e id, ngx_uint_t values, ngx_uint_t json)
{
    const ngx_rl_param_t  *p;

    if (id == NGX_RL_PARAM_ALGORITHM) {
        algorithms(values);
        return;
    }

    p = ngx_rl_param(id, json ? ~(ngx_uint_t) NGX_RL_IN_CONF : (ngx_uint_t) -1);
    const char *before = "";

    for (ngx_uint_t i = 0; p->names && p->names[i]; i++) {
        if (values >> (i + p->min) & 1) {
            say("%s`%s%s`", before, p->conf, p->names[i]);
            before = ", ";
        }
    }

    if (id == NGX_RL_PARAM_WINDOW && values) {
        say("`window=calendar:...`");

    } else if (*before == '\0') {
        say("`%s`", p->conf && !json ? p->conf : p->json);
    }
}


static void
found_in(const char *page)
{
    FILE *file = fopen(page, "r");
    assert_non_null(file);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    size_t n = fread(text, 1, (1 << 20) - 1, file);
    assert_true(n > 0);
    fclose(file);

    if (strstr(text, block) == NULL) {
        fputs(block, stdout);
        fflush(stdout);
        fail_msg("%s does not have this block", page);
    }

    free(text);
}


static void
test_rows(void **state)
{
    uint64_t                   seen[8];

    memset(seen, 0, sizeof(seen));

    for (const ngx_rl_param_t *p = ngx_rl_params; p->id; p++) {
        assert_true(p->id < NGX_RL_PARAM_ALL);
        assert_true(!p->conf == !(p->in & NGX_RL_IN_CONF));
        assert_true(!p->json == !(p->in & ~NGX_RL_IN_CONF));
        assert_true(!p->names == (p->kind != NGX_RL_A_CHOICE));
        assert_true(p->offset + p->size <= sizeof(ngx_rl_draft_t));

        if (p->conf) {
            assert_int_equal(p->conf[strlen(p->conf) - 1] == '=',
                             p->kind != NGX_RL_A_FLAG);
        }

        /* one row for each place */

        for (ngx_uint_t i = 0; i < 8; i++) {
            if (p->in >> i & 1) {
                assert_false(seen[i] >> p->id & 1);
                seen[i] |= (uint64_t) 1 << p->id;
            }
        }
    }

    for (const ngx_rl_exclusion_t *x = ngx_rl_exclusions; x->at; x++) {
        assert_non_null(ngx_rl_param(x->at, (ngx_uint_t) -1));
        assert_non_null(ngx_rl_param(x->with, (ngx_uint_t) -1));
        assert_non_null(x->expected);
    }
}


static void
test_reference(void **state)
{
    end = block;

    say("| nginx.conf | document | value | default | algorithms |\n"
        "|---|---|---|---|---|\n");

    for (const ngx_rl_param_t *p = ngx_rl_params; p->id; p++) {

        /* of a zone or a location alone */

        if (p->id < NGX_RL_PARAM_ALGORITHM && p->json == NULL) {
            continue;
        }

        say("| ");
        say(p->conf ? "`%s`" : "-", p->conf);
        say(" | ");
        say(p->json ? "`%s`" : "-", p->json);
        say(" | ");
        value(p, "`");
        say(" | %s | ", p->standard ? p->standard : "-");
        algorithms(p->algorithms);
        say(" |\n");
    }

    say("\n| parameter | excludes | expected |\n|---|---|---|\n");

    for (const ngx_rl_exclusion_t *x = ngx_rl_exclusions; x->at; x++) {
        ngx_uint_t json = !ngx_rl_param(x->at, NGX_RL_IN_CONF);
        say("| ");
        name(x->at, x->at_values, json);
        say(" | ");
        name(x->with, x->with_values, json);
        say(" | ");
        quoted(x->expected, "`");
        say(" |\n");
    }

    found_in(ROOT "/docs/directives.md");
}


/* Of a member: its JSON types, as far as they can be said. */
static void
schema(const ngx_rl_param_t *p, ngx_uint_t in)
{
    static const char *const  types[] = {    /* ngx_rl_kind_e */
        "integer", "number", "boolean", "string", "string", "string",
        "integer, string", "integer, string", "object", "string", "string",
        "string"
    };

    say("        %s:\n", p->json);

    if (p->id == NGX_RL_PARAM_MATCH
        || p->id == NGX_RL_PARAM_PARAMS
        || p->id == NGX_RL_PARAM_ACTIVE)
    {
        say("          $ref: '#/components/schemas/%s'\n",
            p->id == NGX_RL_PARAM_MATCH ? "Match"
            : p->id == NGX_RL_PARAM_PARAMS ? "Params" : "Active");
        return;
    }

    if (p->expected) {
        say("          description: '");
        quoted(p->expected, "\"");
        say("'\n");
    }

    ngx_uint_t variables = ((p->flags & NGX_RL_WORD)
                            || ((p->flags & NGX_RL_VARIABLES)
                                && in != NGX_RL_OF_AMOUNT))
                           && p->kind == NGX_RL_A_NUMBER;
    const char *type = types[p->kind];

    say("          type: [%s%s%s, 'null']\n", type, variables ? ", string" : "",
        (p->flags & NGX_RL_LIST) ? ", array" : "");

    if (p->flags & NGX_RL_LIST) {
        say("          items:\n            type: %s\n", type);
    }

    if (p->kind == NGX_RL_A_NUMBER) {
        say("          minimum: %ld\n          maximum: %ld\n", (long) p->min,
            (long) p->max);
    }

    if (p->names) {
        say("          enum: [");

        for (ngx_uint_t i = 0; p->names[i]; i++) {
            say("%s%s", i ? ", " : "", p->names[i]);
        }

        say(p->id == NGX_RL_PARAM_ALGORITHM
            ? ", sliding_window_counter]\n" : "]\n");
    }
}


static void
test_schemas(void **state)
{
    static const struct {
        const char  *name;
        ngx_uint_t   in;
    } objects[] = {
        { "Rule", NGX_RL_OF_RULE }, { "Match", NGX_RL_OF_MATCH }, { "Params",
            NGX_RL_OF_PARAMS }, { "Amount", NGX_RL_OF_AMOUNT }, { "Active",
            NGX_RL_OF_ACTIVE }
    };

    end = block;

    for (ngx_uint_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++) {
        say("    %s:\n      type: object\n      additionalProperties: false\n"
            "      properties:\n", objects[i].name);

        for (const ngx_rl_param_t *p = ngx_rl_params; p->id; p++) {
            if (p->in & objects[i].in) {
                schema(p, objects[i].in);
            }
        }
    }

    found_in(ROOT "/docs/openapi.yaml");
}
