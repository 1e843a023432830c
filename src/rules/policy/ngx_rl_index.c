/*
 * The index of a policy's rules. Each template has a list of its rules, which a
 * set of templates finds. One more list has the rules that any path may match:
 * they have no template, or a regular expression. All lists are in the order of
 * ranks, and one array holds them all.
 */

#include "ngx_rl_index.h"

#include "ngx_rl_route.h"

/* of any path; the list of template n is list n + 1 */
#define NGX_RL_INDEX_ANY  0

typedef struct {
    ngx_uint_t        n;
    ngx_rl_rule_t   **rules;
} ngx_rl_index_list_t;

typedef struct {
    ngx_rl_route_set_t    set;
    ngx_rl_index_list_t  *lists;
} ngx_rl_index_t;


/* The number of the list where a rule belongs; its template is known then. */
static ngx_uint_t
ngx_rl_index_list(ngx_rl_index_t *index, const ngx_rl_rule_t *rule)
{
    if (rule->route.len == 0) {
        return NGX_RL_INDEX_ANY;
    }

    return ngx_rl_route_set_add(&index->set, rule->route.data, rule->route.len)
           + 1;
}


ngx_int_t
ngx_rl_index_make(ngx_rl_policy_t *policy, ngx_pool_t *pool)
{
    void                 *memory;
    size_t                bytes, segments;
    ngx_uint_t            i, n, templates;
    ngx_rl_rule_t       **rules, **room;
    ngx_rl_index_t       *index;
    ngx_rl_index_list_t  *list;

    rules = policy->rules.elts;
    n = policy->rules.nelts;
    segments = 0;
    templates = 0;

    for (i = 0; i < n; i++) {
        if (rules[i]->route.len) {
            segments += ngx_rl_route_segments(rules[i]->route.data,
                                              rules[i]->route.len);
            templates++;
        }
    }

    bytes = ngx_rl_route_set_bytes(segments);
    memory = bytes ? ngx_palloc(pool, bytes) : NULL;
    index = ngx_pcalloc(pool, sizeof(ngx_rl_index_t));

    if (memory == NULL || index == NULL) {
        return NGX_ERROR;
    }

    ngx_rl_route_set_init(&index->set, memory, segments);

    index->lists = ngx_pcalloc(pool,
                               (templates + 1) * sizeof(ngx_rl_index_list_t));
    if (index->lists == NULL) {
        return NGX_ERROR;
    }

    /* without rules, too, the lists point to memory */

    room = ngx_palloc(pool, ngx_max(n, 1) * sizeof(ngx_rl_rule_t *));
    if (room == NULL) {
        return NGX_ERROR;
    }

    /* how long the lists are, where they begin, and what is in them */

    for (i = 0; i < n; i++) {
        index->lists[ngx_rl_index_list(index, rules[i])].n++;
    }

    for (i = 0; i <= index->set.n; i++) {
        list = &index->lists[i];
        list->rules = room;
        room += list->n;
        list->n = 0;
    }

    for (i = 0; i < n; i++) {
        list = &index->lists[ngx_rl_index_list(index, rules[i])];
        list->rules[list->n++] = rules[i];
    }

    policy->index = index;

    return NGX_OK;
}


/*
 * Adds a list to the n rules found so far, of which the first max are kept.
 * From the back, so that what is kept moves at most once. Returns how many
 * rules that makes.
 */
static ngx_uint_t
ngx_rl_index_merge(ngx_rl_rule_t **rules, ngx_uint_t n, ngx_uint_t max,
    const ngx_rl_index_list_t *list)
{
    ngx_uint_t      i, j, total;
    ngx_rl_rule_t  *rule;

    total = n + list->n;
    i = ngx_min(n, max);
    j = list->n;

    while (j) {

        if (i && rules[i - 1]->rank > list->rules[j - 1]->rank) {
            rule = rules[--i];

        } else {
            rule = list->rules[--j];
        }

        if (i + j < max) {
            rules[i + j] = rule;
        }
    }

    return total;
}


ngx_uint_t
ngx_rl_policy_find(const ngx_rl_policy_t *policy, const ngx_str_t *path,
    ngx_rl_rule_t **rules, ngx_uint_t max)
{
    uint32_t              number;
    ngx_uint_t            n;
    ngx_rl_index_t       *index;
    ngx_rl_route_walk_t   walk;

    index = policy->index;

    n = ngx_rl_index_merge(rules, 0, max, &index->lists[NGX_RL_INDEX_ANY]);

    ngx_rl_route_walk_init(&walk, &index->set, path->data, path->len);

    for ( ;; ) {
        number = ngx_rl_route_walk_next(&walk);

        if (number == NGX_RL_ROUTE_NONE) {
            return n;
        }

        n = ngx_rl_index_merge(rules, n, max, &index->lists[number + 1]);
    }
}
