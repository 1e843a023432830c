/*
 * Reads which cells to simulate, and prints a line for each:
 *
 *   sim <file>...              each line of them is cells
 *   sim <name>=<value>...      one such line
 *
 * A value may be several, with commas: then the line is all combinations. What
 * is not said is as in sim_defaults. docs/leases.md says what the columns are.
 */

#include "sim.h"

#define SIM_LINE   1024
#define SIM_WORDS  32

typedef struct {
    const char         *name;
    size_t              offset;
    const char *const  *words;     /* of an enum */
    uint64_t            unit;      /* a decimal number is in these parts */
} sim_parameter_t;


static void sim_file(const char *name);
static void sim_line(char *line);
static void sim_cells(char **words, unsigned n, unsigned at);
static void sim_set(const char *word, size_t len);
static uint64_t sim_number(const char *text, const char *end, uint64_t unit);
static void sim_cell(char **words, unsigned n);
static double sim_percent(uint64_t part, uint64_t whole);


static const char *const  sim_algorithms[] = {
    "token_bucket", "leaky_bucket", "fixed_window", "sliding_window", NULL
};

static const char *const  sim_syncs[] = { "lease", "strict", "async",
                                          "peers", "gossip", NULL };

static const char *const  sim_skews[] = { "even", "90", "one", NULL };

static const char *const  sim_arrivals_names[] = {
    "poisson", "onoff", "batch", "flood", NULL
};

static const char *const  sim_faults[] = {
    "none", "break", "flaky", "slow", "away", "failover", "flush", "crash",
    "join", "leave", "lower", "raise", "cut", "loss", NULL
};

static const sim_parameter_t  sim_parameters[] = {
    { "limit", offsetof(sim_cell_t, limit), NULL, 1 },
    { "window", offsetof(sim_cell_t, window_ms), NULL, 1000 },
    { "capacity", offsetof(sim_cell_t, capacity), NULL, 1 },
    { "cost", offsetof(sim_cell_t, cost), NULL, 1 },
    { "nodes", offsetof(sim_cell_t, nodes), NULL, 1 },
    { "workers", offsetof(sim_cell_t, workers), NULL, 1 },
    { "keys", offsetof(sim_cell_t, keys), NULL, 1 },
    { "load", offsetof(sim_cell_t, load), NULL, 1000 },
    { "rate", offsetof(sim_cell_t, rate), NULL, 1 },
    { "skew", offsetof(sim_cell_t, skew), sim_skews, 0 },
    { "arrivals", offsetof(sim_cell_t, arrivals), sim_arrivals_names, 0 },
    { "sync", offsetof(sim_cell_t, sync), sim_syncs, 0 },
    { "fault", offsetof(sim_cell_t, fault), sim_faults, 0 },
    { "at", offsetof(sim_cell_t, at_ms), NULL, 1000 },
    { "lost", offsetof(sim_cell_t, lost_ms), NULL, 1000 },
    { "seconds", offsetof(sim_cell_t, seconds), NULL, 1 },
    { "delay", offsetof(sim_cell_t, delay_us), NULL, 1000000 },
    { "rtt", offsetof(sim_cell_t, rtt_us), NULL, 1000000 },
    { "interval", offsetof(sim_cell_t, interval_ms), NULL, 1000 },
    { "timeout", offsetof(sim_cell_t, timeout_ms), NULL, 1000 },
    { "shards", offsetof(sim_cell_t, shards), NULL, 1 },
    { "seed", offsetof(sim_cell_t, seed), NULL, 1 },
    { "algorithm", offsetof(sim_cell_t, algorithm), sim_algorithms, 0 },
    { NULL, 0, NULL, 0 }
};

static const sim_cell_t  sim_defaults = {
    .algorithm = NGX_RL_TOKEN_BUCKET, .limit = 1000, .window_ms = 10000,
    .cost = 1, .nodes = 3, .workers = 1, .keys = 1, .load = 2000,
    .at_ms = 11000, .lost_ms = 200, .seconds = 60, .delay_us = 300,
    .timeout_ms = 100, .shards = 1, .seed = 1
};


int
main(int argc, char **argv)
{
    int   i;
    char  line[SIM_LINE];

    if (argc < 2) {
        sim_die("usage: sim <file>... or sim <name>=<value>...", "");
    }

    printf("%9s %9s %9s %9s %8s %6s %6s %9s %8s | %s\n", "overage%", "worst%",
           "denials%", "calls", "waited%", "p99ms", "maxms", "enforced",
           "noanswer", "cell");

    if (strchr(argv[1], '=') == NULL) {
        for (i = 1; i < argc; i++) {
            sim_file(argv[i]);
        }

        return 0;
    }

    line[0] = '\0';

    for (i = 1; i < argc; i++) {
        if (strlen(line) + strlen(argv[i]) + 2 > sizeof(line)) {
            sim_die("too long:", argv[i]);
        }

        strcat(line, argv[i]);
        strcat(line, " ");
    }

    sim_line(line);

    return 0;
}


static void
sim_file(const char *name)
{
    FILE  *file;
    char   line[SIM_LINE];

    file = fopen(name, "r");

    if (file == NULL) {
        sim_die("cannot open", name);
    }

    while (fgets(line, sizeof(line), file)) {
        sim_line(line);
    }

    fclose(file);
}


/* "#" is a comment; a line of one alone is printed. */
static void
sim_line(char *line)
{
    char      *word, *words[SIM_WORDS];
    unsigned   n;

    if (*line == '#') {
        printf("%s", line);
        return;
    }

    n = 0;

    for (word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {

        if (n == SIM_WORDS || strchr(word, '=') == NULL) {
            sim_die("expected name=value:", word);
        }

        words[n++] = word;
    }

    if (n) {
        sim.cell = sim_defaults;
        sim_cells(words, n, 0);
    }
}


/* Of the words from this one on, each value with all of the others. */
static void
sim_cells(char **words, unsigned n, unsigned at)
{
    char    *word, *value, one[SIM_LINE];
    size_t   name, len;

    if (at == n) {
        sim_cell(words, n);
        return;
    }

    word = words[at];
    name = (size_t) (strchr(word, '=') + 1 - word);
    memcpy(one, word, name);

    for (value = word + name; *value; value += len + (value[len] == ',')) {
        len = strcspn(value, ",");

        memcpy(one + name, value, len);
        one[name + len] = '\0';

        sim_set(one, name - 1);

        words[at] = one;
        sim_cells(words, n, at + 1);
    }

    words[at] = word;
}


static void
sim_set(const char *word, size_t len)
{
    uint64_t                *place, i;
    const char              *value;
    const sim_parameter_t   *parameter;

    value = word + len + 1;

    for (parameter = sim_parameters; parameter->name; parameter++) {
        if (strlen(parameter->name) == len
            && memcmp(parameter->name, word, len) == 0)
        {
            break;
        }
    }

    if (parameter->name == NULL) {
        sim_die("unknown:", word);
    }

    place = (uint64_t *) (void *) ((char *) &sim.cell + parameter->offset);

    if (parameter->words == NULL) {
        *place = sim_number(value, value + strlen(value), parameter->unit);
        return;
    }

    for (i = 0; parameter->words[i]; i++) {
        if (strcmp(parameter->words[i], value) == 0) {
            *place = i;
            return;
        }
    }

    sim_die("unknown:", word);
}


/* "1.5" of a unit of 1000 is 1500. */
static uint64_t
sim_number(const char *text, const char *end, uint64_t unit)
{
    uint64_t  n;

    for (n = 0; text < end && *text != '.'; text++) {

        if (*text < '0' || *text > '9') {
            sim_die("not a number:", text);
        }

        n = 10 * n + (uint64_t) (*text - '0');
    }

    n *= unit;

    for (text++; text < end && *text >= '0' && *text <= '9'; text++) {
        unit /= 10;
        n += unit * (uint64_t) (*text - '0');
    }

    return n;
}


static void
sim_cell(char **words, unsigned n)
{
    unsigned      i;
    sim_result_t  result;

    if (sim.cell.nodes == 0 || sim.cell.keys == 0 || sim.cell.workers == 0
        || sim.cell.workers > SIM_WORKERS || sim.cell.shards == 0
        || sim.cell.shards > SIM_SHARDS || sim.cell.window_ms == 0
        || (sim.cell.fault >= SIM_CUT && !sim_peers()))
    {
        sim_die("out of range:", words[0]);
    }

    sim_run(&result);

    printf("%9.4f %9.4f %9.4f %9.5f %8.3f %6.1f %6.1f %9.1f %8.3f",
           sim_percent(result.over, result.worth), 100 * result.worst,
           sim_percent(result.under, result.checks * sim.cell.cost),
           (double) result.calls / (double) result.checks,
           sim_percent(result.waited, result.checks),
           (double) result.wait_p99_ns / 1e6, (double) result.wait_max_ns / 1e6,
           (double) result.enforced_ns / 1e6, sim_percent(result.unanswered,
                                                          result.checks));

    if (sim.cell.rtt_us) {
        printf(" %9.1f", (double) result.lag_ns / 1e6);
    }

    printf(" |");

    for (i = 0; i < n; i++) {
        printf(" %s", words[i]);
    }

    printf("\n");
    fflush(stdout);
}


static double
sim_percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double) part / (double) whole : 0;
}
