/*
 * Where documents are: in the store, which the workers of a gateway share and
 * which is declared while the configuration is read; in the state file, which
 * fills a new store before any worker runs, and when an upgrade of the binary
 * was given up; and in Redis, behind the script of documents (lua/rules.lua).
 */

#include "ngx_rl_follow_int.h"

#include "ngx_rl_table.h"
#include "ngx_rl_lua.h"
#include "ngx_rl_state.h"

#include <openssl/crypto.h>

#define NGX_RL_FOLLOW_ARGS  11   /* of EVAL, at most */

/*
 * In Redis a line stands behind a record, if the fleet has a secret: its seal.
 * No document begins like this.
 */
#define NGX_RL_FOLLOW_SEAL  "hmac-sha256 "

#define NGX_RL_FOLLOW_SEAL_LINE                                               \
    (sizeof(NGX_RL_FOLLOW_SEAL) - 1 + 2 * NGX_RL_REDIS_SEAL + 1)

const char  ngx_rl_follow_unsealed[] =
    "it is not sealed by this \"secret_file\"; if a gateway goes by it, give "
    "that gateway the file and reload it, else delete it in Redis";


ngx_int_t
ngx_rl_follow_heads(const ngx_str_t *text, ngx_uint_t whole, ngx_pool_t *pool,
    ngx_array_t *records)
{
    ngx_str_t         rest;
    const char       *wrong;
    ngx_rl_record_t  *record;

    if (ngx_array_init(records, pool, 16, sizeof(ngx_rl_record_t)) != NGX_OK) {
        return NGX_ERROR;
    }

    for (rest = *text; rest.len; rest.len -= record->text.len) {

        record = ngx_array_push(records);
        if (record == NULL) {
            return NGX_ERROR;
        }

        wrong = ngx_rl_record_head(&rest, pool, record);

        if (wrong == ngx_rl_record_no_memory) {
            return NGX_ERROR;
        }

        if (wrong && wrong != ngx_rl_record_too_large) {
            records->nelts--;
            break;
        }

        if (!whole) {

            /* what follows is no document, but the next head */

            record->document.data = NULL;
            record->text.len = ngx_strlchr(rest.data, rest.data + rest.len, LF)
                               + 1 - rest.data;
        }

        rest.data += record->text.len;
    }

    return NGX_OK;
}


/*
 * Of a file that cannot be read the current record takes the place: the file
 * becomes the old one then.
 */
ngx_int_t
ngx_rl_follow_history(ngx_rl_limiter_t *limiter, ngx_pool_t *pool,
    ngx_rl_store_entry_t *entry)
{
    u_char           *p;
    ngx_int_t         rc;
    ngx_log_t         silent;
    ngx_str_t         text;
    ngx_uint_t        i, n;
    ngx_array_t       records;
    ngx_rl_record_t  *record, current;

    rc = ngx_rl_store_read(limiter->store, pool, entry);

    if (rc != NGX_OK || limiter->state.len == 0) {
        return rc;
    }

    /* a level of 0 logs nothing: who begins with the file has said it */

    ngx_memzero(&silent, sizeof(ngx_log_t));

    if (ngx_rl_state_read(&limiter->state, pool, 1, &text, &silent)
        == NGX_ERROR)
    {
        return (ngx_errno == NGX_ENOMEM) ? NGX_ERROR : NGX_OK;
    }

    if (ngx_rl_record_head(&entry->text, pool, &current)
        == ngx_rl_record_no_memory
        || ngx_rl_follow_heads(&text, 1, pool, &records) != NGX_OK)
    {
        return NGX_ERROR;
    }

    p = ngx_pnalloc(pool, entry->text.len + text.len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    text.data = p;
    p = ngx_cpymem(p, entry->text.data, entry->text.len);

    record = records.elts;

    for (i = 0, n = 0; i < records.nelts && n < NGX_RL_RECORD_HISTORY; i++) {

        /* versions that Redis has lost, or of another fleet, are no history */

        if (record[i].version >= current.version
            || (record[i].lineage && current.lineage
                && record[i].lineage != current.lineage))
        {
            continue;
        }

        if ((size_t) (p - text.data) + record[i].text.len
            > NGX_RL_RECORD_RING)
        {
            break;
        }

        p = ngx_cpymem(p, record[i].text.data, record[i].text.len);
        n++;
    }

    entry->text = ngx_rl_str(text.data, p - text.data);

    return NGX_OK;
}


/*
 * A file that cannot be read is a mistake of the configuration, as any other
 * file of it. One that is not whole is set aside, and the leader writes it
 * again.
 */
ngx_int_t
ngx_rl_follow_load(ngx_rl_limiter_t *limiter, ngx_pool_t *pool, ngx_uint_t test)
{
    uint64_t               version, id;
    ngx_int_t              rc;
    ngx_str_t              text;
    ngx_rl_store_t        *store;
    ngx_rl_record_t        record;
    ngx_rl_store_entry_t   entry;

    rc = ngx_rl_state_read(&limiter->state, pool, test, &text, pool->log);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (text.len == 0) {
        return NGX_OK;
    }

    if (ngx_rl_record_head(&text, pool, &record) == ngx_rl_record_no_memory) {
        return NGX_ERROR;
    }

    /* another one of the same version was never saved */

    store = limiter->store;
    ngx_rl_store_version(store, &version, &id);

    if (record.version < version
        || (record.version == version && record.id == id))
    {
        return NGX_OK;
    }

    entry.version = record.version;
    entry.id = record.id;
    entry.text = record.text;

    if (ngx_rl_store_publish(store, &entry, NGX_RL_STORE_ANY, 0) != NGX_OK) {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_NOTICE, pool->log, 0,
                  "ratelimit zone \"%V\" begins with version %uL of its "
                  "rules, from \"%V\"",
                  &limiter->zone.name, record.version, &limiter->state);

    if (rc == NGX_OK) {
        ngx_rl_store_set_file(store, &limiter->state);
        store->written = ngx_rl_store_generation(store);
    }

    return NGX_OK;
}


/* NULL: logged. It is zero, being new, and not zeroed: that would touch it. */
static ngx_rl_store_t *
ngx_rl_follow_store(ngx_shm_zone_t *shm_zone)
{
    size_t           size;
    ngx_rl_store_t  *store;

    size = ngx_rl_store_size(NGX_RL_RECORD_MAX);
    store = ngx_rl_shm_make(shm_zone, size);

    return (store
            && ngx_rl_store_init(store, size, NGX_RL_RECORD_MAX) == NGX_OK)
           ? store : NULL;
}


static ngx_int_t
ngx_rl_follow_proposals_init(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_rl_limiter_t  *limiter, *old;

    limiter = shm_zone->data;
    old = data;

    limiter->proposals = old ? old->proposals : ngx_rl_follow_store(shm_zone);

    return limiter->proposals ? NGX_OK : NGX_ERROR;
}


/* Old workers use the memory: nothing is written to what is there. */
static ngx_int_t
ngx_rl_follow_init(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_int_t          rc;
    ngx_pool_t        *pool;
    ngx_rl_limiter_t  *limiter, *old;

    limiter = shm_zone->data;
    old = data;

    if (old) {
        limiter->store = old->store;
        return NGX_OK;
    }

    limiter->store = ngx_rl_follow_store(shm_zone);

    if (limiter->store == NULL) {
        return NGX_ERROR;
    }

    if (limiter->state.len == 0) {
        return NGX_OK;
    }

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, shm_zone->shm.log);
    if (pool == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_rl_follow_load(limiter, pool, ngx_test_config);

    ngx_destroy_pool(pool);

    return rc;
}


ngx_int_t
ngx_rl_follow_prepare(ngx_conf_t *cf, ngx_rl_limiter_t *limiter, void *tag)
{
    if (limiter->peers
        && !ngx_rl_shm_add(cf, "ratelimit_proposals", NGX_RL_STORE_LAYOUT,
                           &limiter->zone.name,
                           ngx_rl_store_size(NGX_RL_RECORD_MAX),
                           ngx_rl_follow_proposals_init, limiter, tag))
    {
        return NGX_ERROR;
    }

    return ngx_rl_shm_add(cf, "ratelimit_rules", NGX_RL_STORE_LAYOUT,
                          &limiter->zone.name,
                          ngx_rl_store_size(NGX_RL_RECORD_MAX),
                          ngx_rl_follow_init, limiter, tag)
           ? NGX_OK : NGX_ERROR;
}


/*
 * nginx renames the file with the process id of a master that starts another
 * binary, and back if that ends. One that another master has left names another
 * process.
 */
ngx_uint_t
ngx_rl_follow_upgraded(void)
{
    u_char            text[NGX_INT64_LEN + 1];
    ssize_t           n;
    ngx_fd_t          fd;
    ngx_core_conf_t  *ccf;

    ccf = (ngx_core_conf_t *) ngx_get_conf(ngx_cycle->conf_ctx,
                                           ngx_core_module);

    fd = ngx_open_file(ccf->oldpid.data, NGX_FILE_RDONLY, NGX_FILE_OPEN, 0);

    if (fd == NGX_INVALID_FILE) {
        return 0;
    }

    n = ngx_read_fd(fd, text, sizeof(text));
    (void) ngx_close_file(fd);

    while (n > 0 && (text[n - 1] == LF || text[n - 1] == CR)) {
        n--;
    }

    return n > 0 && ngx_atoi(text, n) == ngx_parent;
}


ngx_int_t
ngx_rl_follow_seal(ngx_rl_limiter_t *limiter, ngx_pool_t *pool, ngx_str_t *text)
{
    u_char  *p, *line, seal[NGX_RL_REDIS_SEAL];

    if (limiter->redis == NULL || limiter->redis->secret.len == 0) {
        return NGX_OK;
    }

    p = ngx_pnalloc(pool, text->len + NGX_RL_FOLLOW_SEAL_LINE);

    if (p == NULL
        || ngx_rl_redis_seal(limiter->redis, &limiter->zone.name, text, seal)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    line = ngx_cpymem(p, text->data, text->len);
    line = ngx_cpymem(line, NGX_RL_FOLLOW_SEAL, sizeof(NGX_RL_FOLLOW_SEAL) - 1);
    line = ngx_hex_dump(line, seal, sizeof(seal));
    *line++ = LF;

    *text = ngx_rl_str(p, line - p);

    return NGX_OK;
}


const char *
ngx_rl_follow_unseal(ngx_rl_limiter_t *limiter, ngx_pool_t *pool,
    ngx_str_t *text)
{
    u_char     *line;
    ngx_str_t   found, sealed;

    found = *text;

    if (text->len > NGX_RL_FOLLOW_SEAL_LINE) {
        line = text->data + text->len - NGX_RL_FOLLOW_SEAL_LINE;

        if (line[-1] == LF
            && ngx_memcmp(line, NGX_RL_FOLLOW_SEAL,
                          sizeof(NGX_RL_FOLLOW_SEAL) - 1)
               == 0)
        {
            text->len -= NGX_RL_FOLLOW_SEAL_LINE;
        }
    }

    if (limiter->redis->secret.len == 0) {
        return NULL;
    }

    sealed = *text;

    if (ngx_rl_follow_seal(limiter, pool, &sealed) != NGX_OK) {
        return ngx_rl_record_no_memory;
    }

    return (found.len == sealed.len
            && CRYPTO_memcmp(found.data, sealed.data, found.len) == 0)
           ? NULL : ngx_rl_follow_unsealed;
}


ngx_rl_redis_call_t *
ngx_rl_follow_ask(ngx_rl_follow_t *follow, ngx_rl_redis_handler_pt handler,
    void *data, const char *operation, const char *format,
    const uint64_t *numbers, const ngx_str_t *text)
{
    u_char      buf[NGX_RL_FOLLOW_ARGS][NGX_INT64_LEN + 1];
    ngx_str_t   args[NGX_RL_FOLLOW_ARGS], *arg;

    ngx_str_set(&args[0], "EVAL");
    args[1] = ngx_rl_str((u_char *) ngx_rl_lua_rules, ngx_rl_lua_rules_len);
    ngx_str_set(&args[2], "1");
    args[3] = follow->listener.key;
    arg = &args[4];

    /*
     * While a hash slot moves, Redis refuses a command of two keys if one does
     * not exist, and a history may not. So "get", sent every few seconds, has
     * one key.
     */

    if (ngx_strcmp(operation, "get") != 0) {
        ngx_str_set(&args[2], "2");
        *arg++ = follow->history;
    }

    *arg = ngx_rl_str((u_char *) operation, ngx_strlen(operation));

    for (arg++; *format; arg++, format++) {

        if (*format == 's') {
            *arg = *text;
            continue;
        }

        arg->data = buf[arg - args];
        arg->len = ngx_sprintf(arg->data, (*format == 'i') ? "%016xL" : "%uL",
                               *numbers++)
                   - arg->data;
    }

    return ngx_rl_redis_control_call(follow->limiter->redis, args, arg - args,
                                     3, handler, data);
}


/* Where there is no record, the script calls its id "0". */
ngx_rl_redis_call_t *
ngx_rl_follow_ask_put(ngx_rl_follow_t *follow, ngx_rl_redis_handler_pt handler,
    void *data, uint64_t expected, uint64_t expected_id,
    const ngx_rl_store_entry_t *entry, const ngx_str_t *sealed)
{
    uint64_t  numbers[4];

    numbers[0] = expected;
    numbers[1] = expected ? expected_id : 0;
    numbers[2] = entry->version;
    numbers[3] = entry->id;

    return ngx_rl_follow_ask(follow, handler, data, "put",
                             expected ? "vivis" : "vvvis", numbers, sealed);
}


ngx_int_t
ngx_rl_follow_number(const ngx_rl_redis_result_t *result, ngx_uint_t i,
    uint64_t *number)
{
    return (i < result->n
            && ngx_rl_redis_control_number(&result->texts[i],
                                           NGX_RL_FOLLOW_LATEST, number)
               == NGX_OK)
           ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_rl_follow_version(const ngx_rl_redis_result_t *result, ngx_uint_t i,
    uint64_t *version, uint64_t *id)
{
    size_t      n;
    ngx_int_t   high, low;
    ngx_str_t  *text;

    if (i + 1 >= result->n
        || ngx_rl_follow_number(result, i, version) != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* ngx_hextoi() reads no number of 64 bits */

    text = &result->texts[i + 1];
    n = (text->len == 16) ? 8 : 0;
    high = n ? ngx_hextoi(text->data, n) : 0;
    low = ngx_hextoi(text->data + n, text->len - n);

    if (high == NGX_ERROR || low == NGX_ERROR || text->len > 16) {
        return NGX_ERROR;
    }

    *id = (uint64_t) high << 32 | (uint64_t) low;

    return NGX_OK;
}


void
ngx_rl_follow_resets(ngx_rl_follow_t *follow, uint64_t resets)
{
    if (follow->limiter->store->resets == resets) {
        return;
    }

    follow->limiter->store->resets = resets;

    if (follow->limiter->zone.leases) {
        ngx_rl_leases_forget(follow->limiter->zone.leases,
                             (uint64_t) ngx_current_msec * 1000);
    }
}
