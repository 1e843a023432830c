/* The readings of a path, as a request has them. */

#ifndef READINGS_H_INCLUDED
#define READINGS_H_INCLUDED

#include <stdlib.h>
#include <string.h>

#include "ngx_rl_route.h"


/* For a few calls: in turns. sent: NULL, or the path before it was decoded. */
static inline const ngx_rl_readings_t *
readings_of(const void *text, size_t len, const char *sent)
{
    static unsigned           turn;
    static void              *memory[4];
    static ngx_rl_readings_t  paths[4];

    turn = (turn + 1) % 4;
    ngx_rl_readings_t *path = &paths[turn];
    free(memory[turn]);
    memory[turn] = NULL;

    size_t bytes = ngx_rl_readings_init(path, text, len, (const u_char *) sent,
                                        sent ? strlen(sent) : 0);
    if (bytes) {

        /* exactly this much, for the sanitizers */

        memory[turn] = malloc(bytes);
        if (memory[turn] == NULL) {
            abort();
        }

        ngx_rl_readings_split(path, memory[turn]);
    }

    return path;
}

#endif /* READINGS_H_INCLUDED */
