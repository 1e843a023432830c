/*
 * Redis' protocol to and from bytes.
 */

#ifndef NGX_RL_REDIS_CODEC_H_INCLUDED
#define NGX_RL_REDIS_CODEC_H_INCLUDED

#include "ngx_rl_redis.h"

#include "ngx_rl_hash.h"
#include "ngx_rl_slot_map.h"

#define NGX_RL_REDIS_MAX_REPLY  65536  /* bytes */
#define NGX_RL_REDIS_MAX_TEXT   512    /* of an error kept */
#define NGX_RL_REDIS_MAX_DEPTH  7      /* arrays in arrays */

/* of FORM_TEXTS */
#define NGX_RL_REDIS_CONTROL_TEXTS  128                /* elements */
#define NGX_RL_REDIS_CONTROL_BYTES  (2 * 1024 * 1024)  /* of a reply */

/*
 * Bytes of CLUSTER SLOTS: 16 KB for each hash slot, 25 nodes of the longest
 * names. Its elements are read one by one, and few are kept.
 */
#define NGX_RL_REDIS_MAX_SLOTS                                                \
    ((size_t) NGX_RL_CLUSTER_SLOTS * 16384)


/* One line of CLUSTER SLOTS: a range and its primary. */
typedef struct {
    int64_t                     first;
    int64_t                     last;
    int64_t                     port;
    u_char                      ip;       /* the next value is its address */
    u_char                      host_len;
    u_char                      host[NGX_RL_REDIS_MAX_HOST];
    u_char                      id[NGX_RL_SLOT_MAP_ID]; /* or zeros */
} ngx_rl_redis_range_t;


/* The form in which a reply is read. */
typedef enum {
    NGX_RL_REDIS_FORM_VALUES = 0,
    NGX_RL_REDIS_FORM_SLOTS,   /* CLUSTER SLOTS */
    NGX_RL_REDIS_FORM_TEXTS    /* an array of them, or one */
} ngx_rl_redis_form_e;


/* One reply as the reader builds it. */
typedef struct {
    int                    type;      /* REDIS_REPLY_* of the whole */
    unsigned               flat:1;    /* an array of integers alone; of TEXTS,
                                         without arrays */
    ngx_rl_redis_form_e    form;

    ngx_uint_t                    n;         /* integers */
    int64_t                       values[NGX_RL_REDIS_MAX_VALUES];

    ngx_rl_redis_status_e  error;     /* its word, of a check */
    size_t                 text_len;  /* of an error, cut off */
    u_char                 text[NGX_RL_REDIS_MAX_TEXT];

    ngx_uint_t             nranges;
    ngx_uint_t             max_ranges;
    ngx_rl_redis_range_t  *ranges;    /* heap, freed by the reader */

    ngx_uint_t                    ntexts;
    ngx_str_t                    *texts;     /* heap, as all that they name:
                                                freed by the reader */

    const u_char                 *data;      /* fed: len bytes not read yet */
    size_t                        len;
    size_t                        bytes;     /* read, but no whole reply yet */
    ngx_log_t                    *log;
} ngx_rl_redis_reply_t;


/* the longest "*<n>\r\n" */
#define NGX_RL_REDIS_ARRAY       23

/* "*<n>\r\n"; returns the end. */
u_char *ngx_rl_redis_write_array(u_char *p, ngx_uint_t n);

/* A whole command: at most ARRAY bytes and BULK(len) of each argument. */
u_char *ngx_rl_redis_write_command(u_char *p, const ngx_str_t *args,
    ngx_uint_t nargs);

/* A reader that builds into reply; NULL when memory is out. */
void *ngx_rl_redis_reader_new(ngx_rl_redis_reply_t *reply);
void ngx_rl_redis_reader_free(void *reader, ngx_rl_redis_reply_t *reply);

/* Frees what a reply with ranges, or with texts, left. */
void ngx_rl_redis_ranges_free(ngx_rl_redis_reply_t *reply);
void ngx_rl_redis_texts_free(ngx_rl_redis_reply_t *reply);

/*
 * Feeds the next bytes, after those before were read up to NGX_AGAIN. The bytes
 * must stay until they are read up to NGX_AGAIN, too.
 */
void ngx_rl_redis_reader_feed(void *reader, const u_char *data, size_t len);

/* Bytes fed that are part of no reply read yet. */
size_t ngx_rl_redis_reader_left(void *reader);

/*
 * Reads the next reply: NGX_OK, NGX_AGAIN when more bytes must come, NGX_ERROR
 * when this is no protocol or too large, or memory is out.
 */
ngx_int_t ngx_rl_redis_reader_next(void *reader, ngx_rl_redis_reply_t *reply,
    ngx_rl_redis_form_e form);


/* error.c */

#define NGX_RL_REDIS_MAX_WORD  32    /* bytes, in the log */

/* The first word of a reply that is an error, empty for any other reply. */
ngx_str_t ngx_rl_redis_error_word(const ngx_rl_redis_reply_t *reply);

/*
 * Returns the status of an error. ran: the command has run, or may have in
 * part.
 */
ngx_rl_redis_status_e ngx_rl_redis_error_status(
    const ngx_rl_redis_reply_t *reply, ngx_uint_t *ran);

/*
 * The error for the log: its first 80 bytes, without control characters, keys
 * and arguments, in buf; or its word, where that stands inside. Empty for a
 * reply that is no error.
 */
#define NGX_RL_REDIS_ERROR_TEXT  80

ngx_str_t ngx_rl_redis_error_text(const ngx_rl_redis_reply_t *reply,
    u_char buf[NGX_RL_REDIS_ERROR_TEXT]);

#endif /* NGX_RL_REDIS_CODEC_H_INCLUDED */
