/*
 * Path templates and folding. Templates and paths are walked segment by
 * segment, in place: nothing is copied or allocated, and a match takes time
 * linear in the path.
 */

#include "ngx_rl_route.h"

#include "ngx_rl_match.h"
#include "ngx_rl_text.h"

/* a reading: bits, of which none is the first one */
#define NGX_RL_READ_TEXT             1    /* ";" is text when it is decoded */
#define NGX_RL_READ_FIRST_PARAMETER  2    /* before, it begins a parameter */
#define NGX_RL_READ_FIRST_BACKSLASH  4    /* before, "\" is "/" */
#define NGX_RL_READ_BACKSLASH        8    /* when it is decoded, "\" is "/" */
#define NGX_RL_READ_LAST             16   /* all this is done last: what becomes
                                             ".." by it is text */
#define NGX_RL_READ_SENT             32   /* as it was sent: nginx has resolved
                                             nothing */

#define NGX_RL_READ_PARAMETERS                                                \
    (NGX_RL_READ_TEXT|NGX_RL_READ_FIRST_PARAMETER)
#define NGX_RL_READ_BACKSLASHES                                               \
    (NGX_RL_READ_FIRST_BACKSLASH|NGX_RL_READ_BACKSLASH)

/* in a path as it was sent: what was encoded */
#define NGX_RL_WAS_SLASH      1
#define NGX_RL_WAS_SEMICOLON  2
#define NGX_RL_WAS_BACKSLASH  3

/* what a byte is in a reading: bits */
#define NGX_RL_BEGINS_PARAMETER  1
#define NGX_RL_BEGINS_FIRST      2   /* one that is dropped before decoding */
#define NGX_RL_ENDS_SEGMENT      4
#define NGX_RL_ENDS_ALL          8   /* such a parameter, too */


static int
ngx_rl_is_control(u_char c)
{
    return c < 0x20 || c == 0x7f;
}


int
ngx_rl_segment_next(const u_char **pos, const u_char *last,
    ngx_rl_segment_t *seg)
{
    const u_char  *p;

    p = *pos;

    while (p != last && *p == '/') {
        p++;
    }

    if (p == last) {
        *pos = p;
        return 0;
    }

    seg->data = p;

    while (p != last && *p != '/' && *p != ';') {
        p++;
    }

    seg->len = p - seg->data;

    while (p != last && *p != '/') {
        p++;
    }

    *pos = p;

    return 1;
}


static int
ngx_rl_segment_is_nothing(const ngx_rl_segment_t *seg)
{
    return seg->len == 0 || (seg->len == 1 && seg->data[0] == '.');
}


/*
 * nginx has resolved the ".." of a path; "..;" it takes for a name, and servers
 * that drop parameters first do not.
 */
static int
ngx_rl_segment_is_parent(const ngx_rl_segment_t *seg)
{
    return seg->len == 2 && seg->data[0] == '.' && seg->data[1] == '.';
}


int
ngx_rl_segment_is_rest(const ngx_rl_segment_t *seg)
{
    return seg->len == 2 && seg->data[0] == '*' && seg->data[1] == '*';
}


static const char *
ngx_rl_segment_check(const ngx_rl_segment_t *seg)
{
    size_t  i, last;
    u_char  c;

    if (ngx_rl_segment_is_nothing(seg) || ngx_rl_segment_is_parent(seg)) {
        return "must not contain \".\" or \"..\" as a segment";
    }

    if (seg->data[0] == '*' && (seg->len == 1 || ngx_rl_segment_is_rest(seg))) {
        return NULL;
    }

    i = 0;
    last = seg->len;

    if (seg->data[0] == '{' && seg->data[last - 1] == '}') {
        i = 1;
        last--;

        if (i == last) {
            return "\"{}\" must have a name inside";
        }
    }

    for ( /* void */ ; i < last; i++) {
        c = seg->data[i];

        if (c == '*' || c == '{' || c == '}') {
            return "\"{name}\", \"*\" and \"**\" must be whole segments";
        }
    }

    return NULL;
}


const char *
ngx_rl_route_check(const u_char *text, size_t len)
{
    size_t             i, depth;
    const char        *err;
    const u_char      *pos, *last;
    ngx_rl_segment_t   seg;

    if (len == 0 || text[0] != '/') {
        return "must start with \"/\"";
    }

    for (i = 0; i < len; i++) {

        if (text[i] == '/' && i + 1 < len && text[i + 1] == '/') {
            return "must not contain \"//\"";
        }

        if (text[i] == ';') {
            return "must not contain \";\": parameters of a path are ignored";
        }

        if (ngx_rl_is_control(text[i])) {
            return "must not contain control characters";
        }
    }

    pos = text;
    last = text + len;
    depth = 0;

    while (ngx_rl_segment_next(&pos, last, &seg)) {

        err = ngx_rl_segment_check(&seg);
        if (err != NULL) {
            return err;
        }

        if (ngx_rl_segment_is_rest(&seg) && pos != last) {
            return "\"**\" must be the last segment";
        }

        if (++depth > NGX_RL_ROUTE_DEPTH) {
            return "must have at most 32 segments";
        }
    }

    return NULL;
}


static inline void
ngx_rl_path_push(ngx_rl_path_t *path, const ngx_rl_segment_t *seg)
{
    if (path->depth < NGX_RL_ROUTE_DEPTH) {
        path->segments[path->depth] = *seg;
    }

    path->depth++;
}


static inline void
ngx_rl_path_add(ngx_rl_path_t *path, const ngx_rl_segment_t *seg)
{
    if (ngx_rl_segment_is_nothing(seg)) {
        return;
    }

    if (ngx_rl_segment_is_parent(seg)) {
        path->depth -= (path->depth != 0);
        return;
    }

    ngx_rl_path_push(path, seg);
}


int
ngx_rl_path_split(const u_char *path, size_t len, ngx_rl_path_t *out)
{
    const u_char      *last;
    ngx_rl_segment_t   seg;

    out->depth = 0;

    if (len == 0 || path[0] != '/') {
        return 0;
    }

    last = path + len;

    while (ngx_rl_segment_next(&path, last, &seg)) {
        ngx_rl_path_add(out, &seg);
    }

    return 1;
}


/* A byte of a path that was sent encoded; else the byte itself, and width 1. */
static u_char
ngx_rl_sent_byte(const u_char *p, size_t len, size_t *width)
{
    int  high, low;

    *width = 1;

    if (*p != '%' || len < 3) {
        return *p;
    }

    high = ngx_rl_hex_digit(p[1]);
    low = ngx_rl_hex_digit(p[2]);

    if (high < 0 || low < 0) {
        return *p;
    }

    *width = 3;

    return (u_char) (high << 4 | low);
}


static size_t
ngx_rl_readings_most(const ngx_rl_readings_t *readings)
{
    return (readings->sent_len ? 3 : 2)
           * (1 << __builtin_popcount(readings->bits & (NGX_RL_READ_LAST - 1)));
}


size_t
ngx_rl_readings_init(ngx_rl_readings_t *readings, const u_char *text,
    size_t len, const u_char *sent, size_t sent_len)
{
    size_t    i, width;
    u_char    c;
    unsigned  bits;

    readings->text = text;
    readings->len = len;
    readings->sent = sent;
    readings->sent_len = 0;
    readings->n = 0;

    bits = (memchr(text, ';', len) ? NGX_RL_READ_PARAMETERS : 0)
           | (memchr(text, '\\', len) ? NGX_RL_READ_BACKSLASHES : 0);

    for (i = 0; i < sent_len; i += width) {
        c = ngx_rl_sent_byte(&sent[i], sent_len - i, &width);

        if (c == ';') {
            bits |= NGX_RL_READ_PARAMETERS;

        } else if (c == '\\') {
            bits |= NGX_RL_READ_BACKSLASHES;
        }
    }

    readings->bits = bits;

    if (bits == 0 || len == 0 || text[0] != '/') {
        return 0;
    }

    readings->bits |= NGX_RL_READ_LAST;

    if (sent_len && (sent_len != len || memcmp(sent, text, len) != 0)) {
        readings->sent_len = sent_len;
        readings->bits |= NGX_RL_READ_SENT;
    }

    return ngx_rl_readings_most(readings) * sizeof(ngx_rl_path_t)
           + readings->sent_len;
}


/*
 * Decodes a path as it was sent. What was encoded gets bytes of its own:
 * templates have no control characters, so it does not matter which one of them
 * a path has.
 */
static size_t
ngx_rl_sent_decode(const u_char *p, size_t len, u_char *out)
{
    u_char  c, *begin;
    size_t  i, width;

    begin = out;

    for (i = 0; i < len; i += width) {
        c = ngx_rl_sent_byte(&p[i], len - i, &width);

        if (ngx_rl_is_control(c)) {
            c = 0x7f;

        } else if (width == 3 && c == '/') {
            c = NGX_RL_WAS_SLASH;

        } else if (width == 3 && c == ';') {
            c = NGX_RL_WAS_SEMICOLON;

        } else if (width == 3 && c == '\\') {
            c = NGX_RL_WAS_BACKSLASH;
        }

        *out++ = c;
    }

    return out - begin;
}


static void
ngx_rl_path_read(const u_char *p, const u_char *last, unsigned reading,
    ngx_rl_path_t *path)
{
    u_char             kinds[256], kind, within;
    const u_char      *end;
    ngx_rl_segment_t   seg;

    memset(kinds, 0, sizeof(kinds));
    path->depth = 0;

    kinds['/'] = NGX_RL_ENDS_ALL | NGX_RL_ENDS_SEGMENT;

    if (reading & NGX_RL_READ_FIRST_BACKSLASH) {
        kinds['\\'] = NGX_RL_ENDS_ALL | NGX_RL_ENDS_SEGMENT;

    } else if (reading & NGX_RL_READ_BACKSLASH) {
        kinds['\\'] = NGX_RL_ENDS_SEGMENT;
    }

    if (reading & NGX_RL_READ_FIRST_PARAMETER) {
        kinds[';'] = NGX_RL_BEGINS_FIRST;

    } else if (!(reading & NGX_RL_READ_TEXT)) {
        kinds[';'] = NGX_RL_BEGINS_PARAMETER;
    }

    if (reading & NGX_RL_READ_SENT) {
        kinds[NGX_RL_WAS_SLASH] = NGX_RL_ENDS_SEGMENT;
        kinds[NGX_RL_WAS_SEMICOLON] = (reading & NGX_RL_READ_TEXT)
                                      ? 0 : NGX_RL_BEGINS_PARAMETER;
        kinds[NGX_RL_WAS_BACKSLASH] = (reading & NGX_RL_READ_BACKSLASH)
                                      ? NGX_RL_ENDS_SEGMENT : 0;
    }

    while (p != last) {
        seg.data = p;
        end = NULL;
        within = NGX_RL_ENDS_SEGMENT;

        for ( /* void */ ; p != last; p++) {
            kind = kinds[*p];

            if (kind & within) {
                break;
            }

            if (kind & NGX_RL_BEGINS_FIRST) {
                within = NGX_RL_ENDS_ALL;
            }

            if (kind && end == NULL) {
                end = p;
            }
        }

        seg.len = (end ? end : p) - seg.data;

        if ((reading & NGX_RL_READ_LAST) && ngx_rl_segment_is_parent(&seg)) {
            ngx_rl_path_push(path, &seg);

        } else {
            ngx_rl_path_add(path, &seg);
        }

        p += (p != last);
    }
}


static int
ngx_rl_path_same(const ngx_rl_path_t *one, const ngx_rl_path_t *two)
{
    size_t  i;

    for (i = 0; i < ngx_rl_min(one->depth, NGX_RL_ROUTE_DEPTH); i++) {
        if (one->segments[i].len != two->segments[i].len
            || memcmp(one->segments[i].data, two->segments[i].data,
                      one->segments[i].len)
               != 0)
        {
            return 0;
        }
    }

    return 1;
}


void
ngx_rl_readings_split(ngx_rl_readings_t *readings, void *memory)
{
    size_t          i, n, decoded_len;
    u_char         *decoded;
    unsigned        reading;
    ngx_rl_path_t  *path;

    readings->paths = memory;
    decoded = (u_char *) &readings->paths[ngx_rl_readings_most(readings)];
    decoded_len = ngx_rl_sent_decode(readings->sent, readings->sent_len,
                                     decoded);
    n = 0;

    for (reading = 0; reading <= NGX_RL_READ_SENT + NGX_RL_READ_LAST - 1;
         reading++)
    {
        if (reading & ~readings->bits) {
            continue;
        }

        path = &readings->paths[n];

        if (reading & NGX_RL_READ_SENT) {
            ngx_rl_path_read(decoded, decoded + decoded_len, reading, path);

        } else {
            ngx_rl_path_read(readings->text, readings->text + readings->len,
                             reading, path);
        }

        for (i = 0; i < n; i++) {
            if (readings->paths[i].depth == path->depth
                && ngx_rl_path_same(&readings->paths[i], path))
            {
                break;
            }
        }

        n += (i == n);
    }

    readings->n = n;
}


int
ngx_rl_segment_is_any(const ngx_rl_segment_t *seg)
{
    return seg->data[0] == '{' || (seg->data[0] == '*' && seg->len == 1);
}


static int
ngx_rl_route_match_path(const u_char *tmpl, size_t tmpl_len,
    const ngx_rl_path_t *path)
{
    size_t                   i;
    const u_char            *last;
    ngx_rl_segment_t         want;
    const ngx_rl_segment_t  *seg;

    last = tmpl + tmpl_len;

    for (i = 0; ngx_rl_segment_next(&tmpl, last, &want); i++) {

        if (ngx_rl_segment_is_rest(&want)) {
            return 1;
        }

        if (i == path->depth) {
            return 0;
        }

        if (ngx_rl_segment_is_any(&want)) {
            continue;
        }

        seg = &path->segments[i];

        if (seg->len != want.len || memcmp(seg->data, want.data, want.len) != 0)
        {
            return 0;
        }
    }

    return i == path->depth;
}


int
ngx_rl_route_match(const u_char *tmpl, size_t tmpl_len,
    const ngx_rl_readings_t *path, int every)
{
    int            match;
    size_t         i;
    ngx_rl_path_t  only;

    if (path->n == 0) {
        return ngx_rl_path_split(path->text, path->len, &only)
               && ngx_rl_route_match_path(tmpl, tmpl_len, &only);
    }

    for (i = 0; i < path->n; i++) {
        match = ngx_rl_route_match_path(tmpl, tmpl_len, &path->paths[i]);

        if (match != every) {
            return match;
        }
    }

    return every;
}


/* A decimal number, a UUID (RFC 9562), or 16 and more hexadecimal digits. */

static int
ngx_rl_segment_is_id(const ngx_rl_segment_t *seg)
{
    u_char  c;
    size_t  i, digits, hex, dashes;

    digits = 0;
    hex = 0;
    dashes = 0;

    for (i = 0; i < seg->len; i++) {
        c = seg->data[i];

        if (ngx_rl_hex_digit(c) >= 0) {
            hex++;
            digits += (c <= '9');

        } else if (c == '-' && (i == 8 || i == 13 || i == 18 || i == 23)) {
            dashes++;

        } else {
            return 0;
        }
    }

    if (dashes) {
        return dashes == 4 && hex == 32;
    }

    return hex >= 16 || (hex && digits == hex);
}


static u_char *
ngx_rl_segment_write(const ngx_rl_segment_t *seg, u_char *p)
{
    u_char  c;
    size_t  i;

    static const u_char  hex[] = "0123456789ABCDEF";

    if (ngx_rl_segment_is_id(seg)) {
        memcpy(p, "{id}", 4);
        return p + 4;
    }

    for (i = 0; i < seg->len; i++) {
        c = seg->data[i];

        if (ngx_rl_is_control(c)) {
            *p++ = '%';
            *p++ = hex[c >> 4];
            *p++ = hex[c & 15];

        } else {
            *p++ = c;
        }
    }

    return p;
}


size_t
ngx_rl_route_fold(const u_char *path, size_t path_len, u_char *out)
{
    u_char            *p;
    const u_char      *last;
    ngx_rl_segment_t   seg;

    p = out;
    last = path + path_len;

    while (ngx_rl_segment_next(&path, last, &seg)) {

        if (ngx_rl_segment_is_nothing(&seg)) {
            continue;
        }

        if (ngx_rl_segment_is_parent(&seg)) {
            while (p > out && *--p != '/') { /* void */ }
            continue;
        }

        *p++ = '/';
        p = ngx_rl_segment_write(&seg, p);
    }

    if (p == out) {
        *p++ = '/';
    }

    return p - out;
}


/*
 * A set of path templates: a tree by segment. The literal children of all nodes
 * are in one open-addressing hash table, at most half full. A node with ten
 * thousand of them finds one as fast as a node with two. Only the configuration
 * fills the table, so a client cannot fill it. A client cannot lengthen a
 * search either: it ends at the distance of the entry that is farthest from its
 * own place.
 */

/* the children of a node, in this order: the most specific first */
typedef enum {
    NGX_RL_ROUTE_LITERAL = 0,   /* or the end of the path */
    NGX_RL_ROUTE_ANY,
    NGX_RL_ROUTE_REST,
    NGX_RL_ROUTE_LEAVE
} ngx_rl_route_stage_e;


size_t
ngx_rl_route_segments(const u_char *text, size_t len)
{
    size_t             n;
    const u_char      *last;
    ngx_rl_segment_t   seg;

    n = 0;
    last = text + len;

    while (ngx_rl_segment_next(&text, last, &seg)) {
        n++;
    }

    return n;
}


size_t
ngx_rl_route_set_bytes(size_t segments)
{
    if (segments > NGX_RL_ROUTE_SEGMENTS) {
        return 0;
    }

    return ngx_rl_map_places(segments)
           * sizeof(ngx_rl_route_slot_t)
           + (segments + 1) * sizeof(ngx_rl_route_node_t);
}


static uint32_t
ngx_rl_route_node(ngx_rl_route_set_t *set)
{
    ngx_rl_route_node_t  *node;

    node = &set->nodes[set->nnodes];

    node->literals = 0;
    node->any = 0;
    node->end = NGX_RL_ROUTE_NONE;
    node->rest = NGX_RL_ROUTE_NONE;

    return set->nnodes++;
}


void
ngx_rl_route_set_init(ngx_rl_route_set_t *set, void *memory, size_t segments)
{
    size_t  slots;

    slots = ngx_rl_map_places(segments);

    memset(set, 0, sizeof(ngx_rl_route_set_t));
    memset(memory, 0, slots * sizeof(ngx_rl_route_slot_t));

    set->slots = memory;
    set->nodes = (ngx_rl_route_node_t *) &set->slots[slots];
    set->mask = (uint32_t) slots - 1;

    (void) ngx_rl_route_node(set);
}


/*
 * Eight bytes at a time. It need not withstand chosen paths: the operator fills
 * the table, and a search is bounded.
 */
static uint32_t
ngx_rl_route_hash(const ngx_rl_segment_t *seg)
{
    size_t         len;
    uint64_t       hash, word;
    const u_char  *p;

    p = seg->data;
    hash = seg->len;

    for (len = seg->len; len >= 8; len -= 8) {
        memcpy(&word, p, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15;
        hash ^= hash >> 32;
        p += 8;
    }

    for (word = 0; len; len--) {
        word = word << 8 | *p++;
    }

    hash = (hash ^ word) * 0x9e3779b97f4a7c15;

    return (uint32_t) (hash ^ hash >> 32);
}


static uint32_t
ngx_rl_route_place(uint32_t parent, uint32_t hash)
{
    hash = (hash ^ parent * 0x9e3779b1) * 0x85ebca6b;

    return hash ^ hash >> 16;
}


/* The node behind parent by a literal, or 0. */
static uint32_t
ngx_rl_route_search(const ngx_rl_route_set_t *set, uint32_t parent,
    const ngx_rl_segment_t *seg, uint32_t hash)
{
    uint32_t                    i, place;
    const ngx_rl_route_slot_t  *slot;

    place = ngx_rl_route_place(parent, hash);

    for (i = 0; i < set->probes; i++) {
        slot = &set->slots[(place + i) & set->mask];

        if (slot->child == 0) {
            return 0;
        }

        if (slot->hash == hash && slot->parent == parent
            && slot->len == seg->len
            && memcmp(slot->data, seg->data, seg->len) == 0)
        {
            return slot->child;
        }
    }

    return 0;
}


/* The node behind parent by a template's segment, made where there is none. */
static uint32_t
ngx_rl_route_child(ngx_rl_route_set_t *set, uint32_t parent,
    const ngx_rl_segment_t *seg)
{
    uint32_t              hash, place, child, probes;
    ngx_rl_route_slot_t  *slot;

    if (ngx_rl_segment_is_any(seg)) {
        child = set->nodes[parent].any;

        if (child == 0) {
            child = ngx_rl_route_node(set);
            set->nodes[parent].any = child;
        }

        return child;
    }

    hash = ngx_rl_route_hash(seg);
    child = ngx_rl_route_search(set, parent, seg, hash);

    if (child) {
        return child;
    }

    place = ngx_rl_route_place(parent, hash);
    probes = 1;

    while (set->slots[place & set->mask].child) {
        place++;
        probes++;
    }

    child = ngx_rl_route_node(set);
    set->nodes[parent].literals++;

    slot = &set->slots[place & set->mask];
    slot->data = seg->data;
    slot->len = (uint32_t) seg->len;
    slot->hash = hash;
    slot->parent = parent;
    slot->child = child;

    set->probes = ngx_rl_max(set->probes, probes);
    set->longest = ngx_rl_max(set->longest, seg->len);

    return child;
}


uint32_t
ngx_rl_route_set_add(ngx_rl_route_set_t *set, const u_char *text, size_t len)
{
    int                rest;
    uint32_t           node, *number;
    const u_char      *last;
    ngx_rl_segment_t   seg;

    node = 0;
    rest = 0;
    last = text + len;

    while (ngx_rl_segment_next(&text, last, &seg)) {

        rest = ngx_rl_segment_is_rest(&seg);

        if (!rest) {
            node = ngx_rl_route_child(set, node, &seg);
        }
    }

    number = rest ? &set->nodes[node].rest : &set->nodes[node].end;

    if (*number == NGX_RL_ROUTE_NONE) {
        *number = set->n++;
    }

    return *number;
}


static void
ngx_rl_route_enter(ngx_rl_route_walk_t *walk, uint32_t node)
{
    ngx_rl_route_frame_t  *frame;

    frame = &walk->frames[walk->depth++];
    frame->node = node;
    frame->stage = NGX_RL_ROUTE_LITERAL;

    walk->visited++;
}


static void
ngx_rl_route_read(ngx_rl_route_walk_t *walk, size_t reading)
{
    walk->reading = reading;
    walk->hashed = 0;

    if (walk->readings->n) {
        walk->path = &walk->readings->paths[reading];
        ngx_rl_route_enter(walk, 0);
        return;
    }

    walk->path = &walk->only;

    if (ngx_rl_path_split(walk->readings->text, walk->readings->len,
                          &walk->only))
    {
        ngx_rl_route_enter(walk, 0);
    }
}


/* The node behind parent by the path's segment i, or 0. */
static uint32_t
ngx_rl_route_literal(ngx_rl_route_walk_t *walk, uint32_t parent, size_t i)
{
    const ngx_rl_segment_t    *seg;
    const ngx_rl_route_set_t  *set;

    set = walk->set;
    seg = &walk->path->segments[i];

    if (seg->len > set->longest) {
        return 0;
    }

    /* each segment is hashed once, whatever number of nodes ask for it */

    while (walk->hashed <= i) {
        walk->hashes[walk->hashed] = ngx_rl_route_hash(
                                        &walk->path->segments[walk->hashed]);
        walk->hashed++;
    }

    return ngx_rl_route_search(set, parent, seg, walk->hashes[i]);
}


/*
 * Depth first, with a frame for each node on the way: the node of frame i has i
 * segments of the path behind it. No template is deeper than the array of
 * frames, or than the segments that a path keeps.
 */
static uint32_t
ngx_rl_route_walk_reading(ngx_rl_route_walk_t *walk)
{
    size_t                      i;
    uint32_t                    child;
    ngx_rl_route_frame_t       *frame;
    const ngx_rl_route_node_t  *node;

    while (walk->depth) {
        i = walk->depth - 1;
        frame = &walk->frames[i];
        node = &walk->set->nodes[frame->node];

        switch (frame->stage) {

        case NGX_RL_ROUTE_LITERAL:
            frame->stage = NGX_RL_ROUTE_ANY;

            if (i == walk->path->depth) {
                if (node->end != NGX_RL_ROUTE_NONE) {
                    return node->end;
                }

            } else if (node->literals) {
                child = ngx_rl_route_literal(walk, frame->node, i);

                if (child) {
                    ngx_rl_route_enter(walk, child);
                    break;
                }
            }

            /* fall through */

        case NGX_RL_ROUTE_ANY:
            frame->stage = NGX_RL_ROUTE_REST;

            if (node->any && i < walk->path->depth) {
                ngx_rl_route_enter(walk, node->any);
                break;
            }

            /* fall through */

        case NGX_RL_ROUTE_REST:
            frame->stage = NGX_RL_ROUTE_LEAVE;

            if (node->rest != NGX_RL_ROUTE_NONE) {
                return node->rest;
            }

            /* fall through */

        default: /* NGX_RL_ROUTE_LEAVE */
            walk->depth--;
            break;
        }
    }

    return NGX_RL_ROUTE_NONE;
}


uint32_t
ngx_rl_route_set_find(const ngx_rl_route_set_t *set,
    const ngx_rl_readings_t *path, size_t reading)
{
    ngx_rl_route_walk_t  walk;

    walk.set = set;
    walk.depth = 0;
    walk.visited = 0;
    walk.readings = path;

    if (set->n) {
        ngx_rl_route_read(&walk, reading);
    }

    return ngx_rl_route_walk_reading(&walk);
}


void
ngx_rl_route_walk_init(ngx_rl_route_walk_t *walk, const ngx_rl_route_set_t *set,
    const ngx_rl_readings_t *path)
{
    walk->set = set;
    walk->depth = 0;
    walk->visited = 0;
    walk->readings = path;
    walk->reading = 0;

    if (set->n) {
        ngx_rl_route_read(walk, 0);
    }
}


/* Whether an earlier reading has this template: frames are the way to it. */
static int
ngx_rl_route_returned(const ngx_rl_route_walk_t *walk)
{
    int                      rest;
    size_t                   i, n, reading;
    const ngx_rl_path_t     *path;
    const ngx_rl_segment_t  *one, *two;

    n = walk->depth - 1;
    rest = (walk->frames[n].stage == NGX_RL_ROUTE_LEAVE);

    for (reading = 0; reading < walk->reading; reading++) {
        path = &walk->readings->paths[reading];

        if (rest ? path->depth < n : path->depth != n) {
            continue;
        }

        for (i = 0; i < n; i++) {
            one = &walk->path->segments[i];
            two = &path->segments[i];

            if (walk->frames[i + 1].node
                != walk->set->nodes[walk->frames[i].node].any
                && (one->len != two->len
                    || memcmp(one->data, two->data, one->len) != 0))
            {
                break;
            }
        }

        if (i == n) {
            return 1;
        }
    }

    return 0;
}


uint32_t
ngx_rl_route_walk_next(ngx_rl_route_walk_t *walk)
{
    uint32_t  number;

    for ( ;; ) {
        number = ngx_rl_route_walk_reading(walk);

        if (number != NGX_RL_ROUTE_NONE) {
            if (walk->reading == 0 || !ngx_rl_route_returned(walk)) {
                return number;
            }

            continue;
        }

        if (walk->set->n == 0 || walk->reading + 1 >= walk->readings->n) {
            return NGX_RL_ROUTE_NONE;
        }

        ngx_rl_route_read(walk, walk->reading + 1);
    }
}
