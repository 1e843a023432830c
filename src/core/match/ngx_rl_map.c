/*
 * The map: a table with twice as many places as entries, or more. A digest's
 * place is its first bytes, the next ones are tried from there on.
 */

#include "ngx_rl_map.h"

#define NGX_RL_MAP_MAX  ((size_t) 1 << 28)   /* entries */


size_t
ngx_rl_map_places(size_t n)
{
    size_t  places;

    for (places = 2; places < 2 * n; places *= 2) {
        /* void */
    }

    return places;
}


size_t
ngx_rl_map_bytes(size_t n)
{
    if (n == 0 || n > NGX_RL_MAP_MAX) {
        return 0;
    }

    return ngx_rl_map_places(n) * sizeof(ngx_rl_map_entry_t);
}


void
ngx_rl_map_init(ngx_rl_map_t *map, void *memory, size_t n)
{
    size_t  bytes;

    bytes = ngx_rl_map_bytes(n);

    if (bytes == 0) {
        map->entries = NULL;
        map->mask = 0;
        return;
    }

    map->entries = memory;
    map->mask = (uint32_t) ngx_rl_map_places(n) - 1;

    /* NONE everywhere */
    memset(memory, 0xff, bytes);
}


/* The key's place, or the free one where it would stand: half of them are. */
static ngx_rl_map_entry_t *
ngx_rl_map_place(const ngx_rl_map_t *map, const u_char *key)
{
    uint32_t             i;
    ngx_rl_map_entry_t  *entry;

    memcpy(&i, key, sizeof(i));

    for ( ;; i++) {
        entry = &map->entries[i & map->mask];

        if (entry->value == NGX_RL_MAP_NONE
            || memcmp(entry->key, key, NGX_RL_MAP_KEY) == 0)
        {
            return entry;
        }
    }
}


uint32_t
ngx_rl_map_put(ngx_rl_map_t *map, const u_char *key, uint32_t value)
{
    uint32_t             before;
    ngx_rl_map_entry_t  *entry;

    entry = ngx_rl_map_place(map, key);
    before = entry->value;

    memcpy(entry->key, key, NGX_RL_MAP_KEY);
    entry->value = value;

    return before;
}


uint32_t
ngx_rl_map_get(const ngx_rl_map_t *map, const u_char *key)
{
    if (map->entries == NULL) {
        return NGX_RL_MAP_NONE;
    }

    return ngx_rl_map_place(map, key)->value;
}
