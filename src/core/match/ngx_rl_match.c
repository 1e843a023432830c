/*
 * The map: a table with twice as many places as entries, or more. A digest's
 * place is its first bytes, the next ones are tried from there on.
 *
 * Globs: the last "*" seen is all that has to be remembered: if what follows it
 * fits somewhere, its first place will do, for the next "*" takes the rest. A
 * list has a table of its prefixes, at most half full, found by a hash of their
 * bytes. A text is hashed byte by byte, and looked up at each length that a
 * prefix has.
 *
 * Networks: a map for each length of a prefix that there is, from the longest
 * on. Before each map stands a filter of 16 bits a network or more. Most
 * addresses are in no network, and the filter tells that without the map, from
 * memory that is small enough to stay in the nearest cache.
 */

#include "ngx_rl_match.h"
#include "ngx_rl_text.h"

#include <arpa/inet.h>

#define NGX_RL_MAP_MAX  ((size_t) 1 << 28)   /* entries */

#define NGX_RL_GLOB_LENGTHS  (NGX_RL_GLOB_MAX + 1)
#define NGX_RL_GLOB_SEED     2166136261u

#define NGX_RL_ADDRESS_BITS  128

typedef struct {
    uint32_t  hash;
    uint32_t  number;                /* NONE: the place is free */
} ngx_rl_glob_place_t;

struct ngx_rl_globs_s {
    ngx_rl_glob_text_t   *globs;     /* by number */
    ngx_rl_glob_place_t  *places;    /* of prefixes */
    uint32_t             *others;    /* numbers, ascending */
    uint32_t              mask;
    uint32_t              nothers;
    uint32_t              nlengths;
    uint16_t              lengths[NGX_RL_GLOB_LENGTHS];
                                            /* of prefixes, ascending */
};

/* The networks whose prefix has this length. */
typedef struct {
    uint64_t      mask[2];
    uint32_t      bits;
    ngx_rl_map_t  map;       /* -> value */
    u_char       *filter;    /* a bit is set for each network */
    uint64_t      filter_mask;
} ngx_rl_networks_level_t;

struct ngx_rl_networks_s {
    size_t                   n;
    ngx_rl_networks_level_t  levels[];
};


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


const char *
ngx_rl_glob_check(const u_char *glob, size_t len)
{
    size_t  i;

    if (len == 0 || len > NGX_RL_GLOB_MAX) {
        return "1 to 256 bytes";
    }

    for (i = 0; i < len; i++) {

        if (glob[i] == '\\' && ++i == len) {
            return "another byte behind \"\\\"";
        }
    }

    return NULL;
}


int
ngx_rl_glob_wild(const u_char *glob, size_t len)
{
    size_t  i;

    for (i = 0; i < len; i++) {

        if (glob[i] == '*' || glob[i] == '?') {
            return 1;
        }

        if (glob[i] == '\\') {
            i++;
        }
    }

    return 0;
}


int
ngx_rl_glob_any(const u_char *glob, size_t len)
{
    size_t  i;

    for (i = 0; i < len; i++) {

        if (glob[i] != '*') {
            return 0;
        }
    }

    return len > 0;
}


int
ngx_rl_glob_match(const u_char *glob, size_t glob_len, const u_char *text,
    size_t len)
{
    size_t        n;
    const u_char  *p, *last, *t, *end, *star, *from;

    p = glob;
    last = glob + glob_len;
    t = text;
    end = text + len;
    star = NULL;                    /* behind the last one */
    from = NULL;                    /* and where its rest was tried */

    for ( ;; ) {

        if (p < last && *p == '*') {
            star = ++p;
            from = t;

            if (star == last) {
                return 1;
            }

            continue;
        }

        if (t == end && p == last) {
            return 1;
        }

        if (t < end && p < last) {
            n = (*p == '\\');

            if ((n == 0 && *p == '?') || p[n] == *t) {
                p += n + 1;
                t++;
                continue;
            }
        }

        /* a text too short for the rest here is too short further on */

        if (star == NULL || t == end) {
            return 0;
        }

        p = star;
        t = ++from;
    }
}


size_t
ngx_rl_globs_bytes(size_t n)
{
    return sizeof(ngx_rl_globs_t)
           + n * sizeof(ngx_rl_glob_text_t)
           + ngx_rl_map_places(n) * sizeof(ngx_rl_glob_place_t)
           + n * sizeof(uint32_t);
}


/* Whether it is a text, as it stands, and one "*" behind it. */
static int
ngx_rl_glob_prefix(const ngx_rl_glob_text_t *glob)
{
    size_t  i;

    for (i = 0; i + 1 < glob->len; i++) {

        if (glob->data[i] == '*' || glob->data[i] == '?'
            || glob->data[i] == '\\')
        {
            return 0;
        }
    }

    return glob->data[i] == '*';
}


/* FNV-1a, which goes on where it ended. */
static uint32_t
ngx_rl_glob_hash(uint32_t hash, const u_char *p, const u_char *last)
{
    for ( /* void */ ; p < last; p++) {
        hash = (hash ^ *p) * 16777619u;
    }

    return hash;
}


/* The prefix' place, or the free one where it would stand. */
static ngx_rl_glob_place_t *
ngx_rl_globs_place(const ngx_rl_globs_t *list, uint32_t hash,
    const u_char *text, size_t len)
{
    uint32_t                   i;
    ngx_rl_glob_place_t       *place;
    const ngx_rl_glob_text_t  *glob;

    /* FNV's low bits know little of the bytes' high ones */

    for (i = hash ^ (hash >> 15); /* void */ ; i++) {
        place = &list->places[i & list->mask];

        if (place->number == NGX_RL_GLOB_NONE) {
            return place;
        }

        glob = &list->globs[place->number];

        if (place->hash == hash && glob->len - 1 == len
            && memcmp(glob->data, text, len) == 0)
        {
            return place;
        }
    }
}


ngx_rl_globs_t *
ngx_rl_globs_init(void *memory, const ngx_rl_glob_text_t *globs, size_t n)
{
    size_t                i, len;
    u_char                seen[NGX_RL_GLOB_LENGTHS];
    uint32_t              hash;
    ngx_rl_globs_t       *list;
    ngx_rl_glob_place_t  *place;

    list = memory;
    list->globs = (ngx_rl_glob_text_t *) (list + 1);
    list->places = (ngx_rl_glob_place_t *) (list->globs + n);
    list->mask = (uint32_t) ngx_rl_map_places(n) - 1;
    list->others = (uint32_t *) (list->places + list->mask + 1);
    list->nothers = 0;
    list->nlengths = 0;

    for (i = 0; i <= list->mask; i++) {
        list->places[i].number = NGX_RL_GLOB_NONE;
    }

    memset(seen, 0, sizeof(seen));

    for (i = 0; i < n; i++) {
        list->globs[i] = globs[i];

        if (!ngx_rl_glob_prefix(&globs[i])) {
            list->others[list->nothers++] = (uint32_t) i;
            continue;
        }

        len = globs[i].len - 1;
        seen[len] = 1;

        hash = ngx_rl_glob_hash(NGX_RL_GLOB_SEED, globs[i].data,
                                globs[i].data + len);
        place = ngx_rl_globs_place(list, hash, globs[i].data, len);

        /* of equal ones the first counts */

        if (place->number == NGX_RL_GLOB_NONE) {
            place->hash = hash;
            place->number = (uint32_t) i;
        }
    }

    for (len = 0; len < NGX_RL_GLOB_LENGTHS; len++) {

        if (seen[len]) {
            list->lengths[list->nlengths++] = (uint16_t) len;
        }
    }

    return list;
}


uint32_t
ngx_rl_globs_find(const ngx_rl_globs_t *list, const u_char *text, size_t len)
{
    size_t                      done;
    uint32_t                    i, best, hash;
    const ngx_rl_glob_text_t   *glob;
    const ngx_rl_glob_place_t  *place;

    best = NGX_RL_GLOB_NONE;

    if (list == NULL) {
        return best;
    }

    /* the first of the prefixes that the text begins with */

    hash = NGX_RL_GLOB_SEED;
    done = 0;

    for (i = 0; i < list->nlengths && list->lengths[i] <= len; i++) {
        hash = ngx_rl_glob_hash(hash, text + done, text + list->lengths[i]);
        done = list->lengths[i];

        place = ngx_rl_globs_place(list, hash, text, done);
        best = ngx_rl_min(best, place->number);
    }

    for (i = 0; i < list->nothers && list->others[i] < best; i++) {
        glob = &list->globs[list->others[i]];

        if (ngx_rl_glob_match(glob->data, glob->len, text, len)) {
            return list->others[i];
        }
    }

    return best;
}


void
ngx_rl_address(const u_char *bytes, size_t len, u_char address[NGX_RL_ADDRESS])
{
    static const u_char  mapped[12] = { [10] = 0xff, [11] = 0xff };

    if (len == NGX_RL_ADDRESS) {
        memcpy(address, bytes, len);
        return;
    }

    memcpy(address, mapped, sizeof(mapped));
    memcpy(address + sizeof(mapped), bytes, 4);
}


/* Written so that it becomes one load. */
static uint64_t
ngx_rl_networks_word(const u_char *p)
{
    return (uint64_t) p[0] << 56 | (uint64_t) p[1] << 48
           | (uint64_t) p[2] << 40 | (uint64_t) p[3] << 32
           | (uint64_t) p[4] << 24 | (uint64_t) p[5] << 16
           | (uint64_t) p[6] << 8 | (uint64_t) p[7];
}


static void
ngx_rl_networks_words(const u_char *address, uint64_t words[2])
{
    words[0] = ngx_rl_networks_word(address);
    words[1] = ngx_rl_networks_word(address + 8);
}


/* A mask of an address' first bits. */
static void
ngx_rl_networks_mask(size_t bits, uint64_t mask[2])
{
    mask[0] = (bits == 0) ? 0
              : (bits >= 64) ? UINT64_MAX : UINT64_MAX << (64 - bits);
    mask[1] = (bits <= 64) ? 0 : UINT64_MAX << (128 - bits);
}


int
ngx_rl_network_parse(const u_char *text, size_t len, ngx_rl_network_t *network)
{
    char      buf[INET6_ADDRSTRLEN];
    u_char    bytes[NGX_RL_ADDRESS];
    size_t    i, n;
    uint64_t  bits, words[2], mask[2];

    for (n = 0; n < len && text[n] != '/'; n++) {
        /* void */
    }

    if (n == 0 || n >= sizeof(buf)) {
        return -1;
    }

    memcpy(buf, text, n);
    buf[n] = '\0';

    /* a zero byte in the text would end it for inet_pton() */

    if (strlen(buf) != n) {
        return -1;
    }

    bits = NGX_RL_ADDRESS_BITS;

    if (inet_pton(AF_INET, buf, bytes) == 1) {
        ngx_rl_address(bytes, 4, network->address);
        i = NGX_RL_MAPPED;

    } else if (inet_pton(AF_INET6, buf, network->address) == 1) {
        i = 0;

    } else {
        return -1;
    }

    if (n < len) {

        if (ngx_rl_number_parse(text + n + 1, len - n - 1, 0,
                                NGX_RL_ADDRESS_BITS - i, &bits)
            != 0)
        {
            return -1;
        }

        bits += i;
    }

    network->bits = (uint32_t) bits;

    ngx_rl_networks_words(network->address, words);

    ngx_rl_networks_mask(network->bits, mask);

    for (i = 0; i < NGX_RL_ADDRESS; i++) {
        network->address[i] = (u_char) ((words[i / 8] & mask[i / 8])
                                        >> (56 - i % 8 * 8));
    }

    return 0;
}


/* How many there are of each length. Returns how many lengths there are. */
static size_t
ngx_rl_networks_count(const ngx_rl_network_t *networks, size_t n,
    size_t counts[NGX_RL_ADDRESS_BITS + 1])
{
    size_t  i, lengths;

    memset(counts, 0, (NGX_RL_ADDRESS_BITS + 1) * sizeof(size_t));
    lengths = 0;

    for (i = 0; i < n; i++) {
        lengths += (counts[networks[i].bits]++ == 0);
    }

    return lengths;
}


/* A power of two, or 0. The maps need an alignment of 4. */
static size_t
ngx_rl_networks_filter_bytes(size_t n)
{
    return n ? 2 * ngx_rl_map_places(n) : 0;
}


size_t
ngx_rl_networks_bytes(const ngx_rl_network_t *networks, size_t n)
{
    size_t  i, bytes, map, counts[NGX_RL_ADDRESS_BITS + 1];

    bytes = sizeof(ngx_rl_networks_t)
            + ngx_rl_networks_count(networks, n, counts)
              * sizeof(ngx_rl_networks_level_t);

    for (i = 0; i <= NGX_RL_ADDRESS_BITS; i++) {
        map = ngx_rl_map_bytes(counts[i]);

        if (counts[i] && map == 0) {
            return 0;
        }

        bytes += map + ngx_rl_networks_filter_bytes(counts[i]);
    }

    return bytes;
}


/* MurmurHash3's last step, which maps no two words to one. */
static uint64_t
ngx_rl_networks_mix(uint64_t word)
{
    word = (word ^ word >> 33) * 0xff51afd7ed558ccdULL;
    word = (word ^ word >> 33) * 0xc4ceb9fe1a85ec53ULL;

    return word ^ word >> 33;
}


/*
 * The network of that length. The map's place is the first bytes of its key:
 * they depend on all bits, and two networks never have the same key. Returns
 * the hash for the filter.
 */
static uint64_t
ngx_rl_networks_key(const uint64_t words[2],
    const ngx_rl_networks_level_t *level, u_char key[NGX_RL_MAP_KEY])
{
    uint64_t  high, low;

    low = words[1] & level->mask[1];
    high = words[0] & level->mask[0];
    high = ngx_rl_networks_mix(high ^ ngx_rl_networks_mix(low));

    memcpy(key, &high, sizeof(high));
    memcpy(key + sizeof(high), &low, sizeof(low));

    return high;
}


ngx_rl_networks_t *
ngx_rl_networks_init(void *memory, const ngx_rl_network_t *networks, size_t n)
{
    u_char                   *p, key[NGX_RL_MAP_KEY];
    size_t                    i, bits, counts[NGX_RL_ADDRESS_BITS + 1];
    uint32_t                  before;
    uint64_t                  words[2], bit;
    ngx_rl_networks_t        *list;
    ngx_rl_networks_level_t  *level;

    list = memory;
    level = list->levels;

    list->n = ngx_rl_networks_count(networks, n, counts);
    p = (u_char *) &list->levels[list->n];

    for (bits = NGX_RL_ADDRESS_BITS + 1; bits-- > 0; /* void */ ) {

        if (counts[bits] == 0) {
            continue;
        }

        level->bits = (uint32_t) bits;
        ngx_rl_networks_mask(bits, level->mask);

        ngx_rl_map_init(&level->map, p, counts[bits]);
        p += ngx_rl_map_bytes(counts[bits]);

        level->filter = p;
        level->filter_mask = ngx_rl_networks_filter_bytes(counts[bits]) * 8 - 1;
        p += ngx_rl_networks_filter_bytes(counts[bits]);

        for (i = 0; i < n; i++) {

            if (networks[i].bits != bits) {
                continue;
            }

            ngx_rl_networks_words(networks[i].address, words);
            bit = ngx_rl_networks_key(words, level, key) & level->filter_mask;
            level->filter[bit / 8] |= (u_char) (1u << bit % 8);

            before = ngx_rl_map_get(&level->map, key);

            if (before == NGX_RL_MAP_NONE || before < networks[i].value) {
                (void) ngx_rl_map_put(&level->map, key, networks[i].value);
            }
        }

        level++;
    }

    return list;
}


int
ngx_rl_networks_have(const ngx_rl_networks_t *list,
    const u_char address[NGX_RL_ADDRESS], uint32_t least)
{
    u_char                          key[NGX_RL_MAP_KEY];
    uint32_t                        value, shortest;
    uint64_t                        words[2], bit;
    const ngx_rl_networks_level_t  *level, *end;

    if (list == NULL) {
        return 0;
    }

    ngx_rl_networks_words(address, words);

    shortest = (words[0] == 0 && words[1] >> 32 == 0xffff) ? NGX_RL_MAPPED : 0;
    end = list->levels + list->n;

    for (level = list->levels;
         level < end && level->bits >= shortest;
         level++)
    {
        bit = ngx_rl_networks_key(words, level, key) & level->filter_mask;

        if (!(level->filter[bit / 8] >> bit % 8 & 1)) {
            continue;
        }

        value = ngx_rl_map_get(&level->map, key);

        if (value != NGX_RL_MAP_NONE && value >= least) {
            return 1;
        }
    }

    return 0;
}
