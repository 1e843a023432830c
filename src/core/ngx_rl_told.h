/*
 * What gateways without Redis tell each other: how much was spent of which
 * counters. The messages of a connection, who may speak on it, and the limits
 * that go along, so that a gateway charges a counter that it has never seen.
 *
 *     hello      magic, name of the gateway, nonce             each side, once
 *     proof      a keyed hash of both hellos                   each side, once
 *     message    length, number, kind, age, records, seal      from then on
 *
 * A message has counters, or one word about a document: a version, or a part of
 * its record.
 *
 * The side that has connected proves first. A seal is a keyed hash of all
 * that stands before it, under a key that the two hellos give each direction:
 * no message can be made, changed, left out or sent again.
 */

#ifndef NGX_RL_TOLD_H_INCLUDED
#define NGX_RL_TOLD_H_INCLUDED

#include "ngx_rl_hash.h"
#include "ngx_rl_limit.h"

#define NGX_RL_TOLD_SECRET   16     /* bytes of a key */
#define NGX_RL_TOLD_PROOF    16
#define NGX_RL_TOLD_NONCE    16
#define NGX_RL_TOLD_HELLO    (8 + 8 + NGX_RL_TOLD_NONCE)

#define NGX_RL_TOLD_HEAD     16     /* length, number, kind, age */
#define NGX_RL_TOLD_SEAL     16
#define NGX_RL_TOLD_MOST     65536  /* bytes of a message */
#define NGX_RL_TOLD_LEAST    (NGX_RL_TOLD_HEAD + NGX_RL_TOLD_SEAL)
#define NGX_RL_TOLD_LIMITS   32     /* in a message */
#define NGX_RL_TOLD_AGE      0xffffff   /* ms: so long or more, or no Redis */

typedef enum {
    NGX_RL_TOLD_SPENT = 0,     /* add to what the receiver knows */
    NGX_RL_TOLD_STATE,         /* all that is used: the larger one counts */

    /* of a document */
    NGX_RL_TOLD_VERSION,       /* that the sender has */
    NGX_RL_TOLD_PROPOSAL,      /* the receiver is to make it current */
    NGX_RL_TOLD_ASK,           /* for the part of a record at offset */
    NGX_RL_TOLD_PART,
    NGX_RL_TOLD_KINDS
} ngx_rl_told_e;

/* A limit as it is told: what its counters need, and no name. */
typedef struct {
    uint64_t  period_us;       /* of a rate's tokens; else the window */
    uint32_t  zone;            /* hash of its name */
    uint32_t  tokens;          /* of a rate; else 0 */
    uint32_t  capacity;
    uint16_t  code;            /* of windows; else 0 */
    uint8_t   algorithm;
    uint8_t   unused;          /* 0 */
} ngx_rl_told_limit_t;

/* One counter of a message. */
typedef struct {
    ngx_rl_id_t            id;
    const ngx_rl_limit_t  *limit;
    uint32_t               zone;
    int32_t                tokens;   /* SPENT: below 0, they came back; of
                                        permits always those in use */
    uint64_t               left_ms;  /* of a fixed window: until it ends */
    uint32_t               reset;    /* when it was reset last, in seconds since
                                        the epoch; 0: not lately, or never */
} ngx_rl_told_t;

/* A word about a document. */
typedef struct {
    uint32_t              zone;         /* hash of its name */
    uint64_t              version;
    uint64_t              id;
    uint64_t              offset;
    uint64_t              size;         /* PART: of the whole record */
    uint64_t              base;         /* ASK: version of the sender; PART: 1,
                                           if its sender never had that */
    uint64_t              base_id;      /* its id; PROPOSAL: of the version
                                           that it is made of */
    const u_char         *data;         /* PART */
    size_t                len;
} ngx_rl_told_record_t;

#define NGX_RL_TOLD_RECORD  (4 + 6 * 8)
#define NGX_RL_TOLD_PART_MOST                                                 \
    (NGX_RL_TOLD_MOST - NGX_RL_TOLD_LEAST - NGX_RL_TOLD_RECORD)

typedef struct {
    u_char               *start;
    u_char               *last;
    u_char               *end;
    unsigned              n;
    ngx_rl_told_limit_t   limits[NGX_RL_TOLD_LIMITS];
} ngx_rl_told_writer_t;

typedef struct {
    const u_char         *p;
    const u_char         *end;
    unsigned              n;
    unsigned              kind;         /* ngx_rl_told_e */
    uint32_t              age_ms;       /* since Redis answered the sender */
    uint32_t              zones[NGX_RL_TOLD_LIMITS];
    ngx_rl_limit_t        limits[NGX_RL_TOLD_LIMITS];
} ngx_rl_told_reader_t;


/* The limit of a zone as it is told; that of a location's part as the whole. */
void ngx_rl_told_limit(ngx_rl_told_limit_t *told, const ngx_rl_limit_t *limit,
    uint32_t zone);

/* The limit that was told. Returns 0, or -1: there is no such limit. */
int ngx_rl_told_limit_read(ngx_rl_limit_t *limit,
    const ngx_rl_told_limit_t *told);

/*
 * What of a counter is used, by its answer to a look, in tokens; of a bucket,
 * its debt too. A state that is told is rounded down, and what is compared with
 * it up: a bucket fills meanwhile, and nobody charges a token for that.
 */
uint32_t ngx_rl_told_used(const ngx_rl_limit_t *limit,
    const ngx_rl_answer_t *answer, unsigned up);

/*
 * Whether what was spent in a fixed window that ends in told_us belongs to the
 * window that ends in own_us: the clocks of two gateways differ a little.
 */
int ngx_rl_told_window(uint64_t window_us, uint64_t told_us, uint64_t own_us);


/* A hello; nonce has NONCE random bytes, name is not 0. */
void ngx_rl_told_hello(u_char hello[NGX_RL_TOLD_HELLO], uint64_t name,
    const u_char nonce[NGX_RL_TOLD_NONCE]);

/* The name in it; 0: the other side is not one of this version. */
uint64_t ngx_rl_told_hello_name(const u_char hello[NGX_RL_TOLD_HELLO]);

/*
 * Hashes of the two hellos: first is that of the side that connected. purpose
 * is one of these, so that no hash is of use as another.
 */
#define NGX_RL_TOLD_PROOF_SECOND  1
#define NGX_RL_TOLD_PROOF_FIRST   2
#define NGX_RL_TOLD_KEY_SECOND    3   /* of what it sends */
#define NGX_RL_TOLD_KEY_FIRST     4

void ngx_rl_told_prove(u_char proof[NGX_RL_TOLD_PROOF],
    const u_char secret[NGX_RL_TOLD_SECRET], unsigned purpose,
    const u_char first[NGX_RL_TOLD_HELLO],
    const u_char second[NGX_RL_TOLD_HELLO]);

/* Whether 16 bytes are equal, in a time that does not tell where not. */
int ngx_rl_told_equal(const u_char one[NGX_RL_TOLD_PROOF],
    const u_char two[NGX_RL_TOLD_PROOF]);


/* Begins a message of a kind in size bytes, LEAST or more. */
void ngx_rl_told_begin(ngx_rl_told_writer_t *writer, u_char *buf, size_t size,
    ngx_rl_told_e kind);

/* Adds a counter. Returns 0, or -1: the message is full, and is as it was. */
int ngx_rl_told_add(ngx_rl_told_writer_t *writer,
    const ngx_rl_told_limit_t *limit, const ngx_rl_id_t *id, int32_t tokens,
    uint64_t left_ms, uint32_t reset);

/* Ends it, but for number and seal. Returns its bytes, the seal included. */
size_t ngx_rl_told_end(ngx_rl_told_writer_t *writer);

/* How long ago Redis has answered this gateway; if not told, just now. */
void ngx_rl_told_age(u_char *message, uint64_t age_ms);

/* Writes number and seal of a message, for one connection. */
void ngx_rl_told_seal(u_char *message, size_t len,
    const u_char key[NGX_RL_TOLD_SECRET], uint64_t number);

/*
 * The bytes of the message that begins with n bytes; 0: more than n are needed
 * to tell, -1: it is none.
 */
ssize_t ngx_rl_told_length(const u_char *data, size_t n);

/* Opens a message. Returns 0, or -1: the seal or the number is wrong. */
int ngx_rl_told_open(ngx_rl_told_reader_t *reader, const u_char *message,
    size_t len, const u_char key[NGX_RL_TOLD_SECRET], uint64_t number);

/*
 * Reads the next counter, whose limit lives as long as the reader. Returns 1,
 * 0: there is no more, or -1: this is no message.
 */
int ngx_rl_told_next(ngx_rl_told_reader_t *reader, ngx_rl_told_t *told);

/*
 * Writes a message with a word about a document, but for number and seal, in
 * MOST bytes; len is PART_MOST at most. Returns its bytes.
 */
size_t ngx_rl_told_record(u_char *buf, ngx_rl_told_e kind,
    const ngx_rl_told_record_t *record);

/*
 * Reads it; data points into the message. Returns 0, or -1: this is no such
 * message.
 */
int ngx_rl_told_record_read(ngx_rl_told_reader_t *reader,
    ngx_rl_told_record_t *record);

#endif /* NGX_RL_TOLD_H_INCLUDED */
