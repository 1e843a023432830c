/*
 * Random numbers in integers alone: no library's logarithm rounds them another
 * way on another machine. And heaps of what is to come.
 */

#include "sim.h"


static uint64_t sim_next(sim_chance_t *chance);
static unsigned sim_before(const sim_item_t *a, const sim_item_t *b);


/* splitmix64, by Steele, Lea and Flood */
static uint64_t
sim_next(sim_chance_t *chance)
{
    uint64_t  z;

    z = (chance->state += 0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;

    return z ^ z >> 31;
}


uint64_t
sim_below(sim_chance_t *chance, uint64_t n)
{
    return (sim_next(chance) >> 32) * n >> 32;
}


/*
 * Von Neumann: of uniform numbers, the length of the first falling run decides
 * whether its head is the fraction; each head refused adds one to the integer.
 */
uint64_t
sim_gap(sim_chance_t *chance, uint64_t mean)
{
    uint64_t  whole, head, last, next, length, x;

    for (whole = 0; ; whole++) {
        head = sim_next(chance) >> 38;
        last = head;
        length = 1;

        for ( ;; ) {
            next = sim_next(chance) >> 38;

            if (next >= last) {
                break;
            }

            last = next;
            length++;
        }

        if (length % 2 == 1) {
            break;
        }
    }

    /* in 2^26ths, below 2^31; the mean may have all bits up to 2^58 */

    x = whole << 26 | head;

    return x * (mean >> 26) + (x * (mean & 0x3ffffff) >> 26);
}


void
sim_heap_push(sim_heap_t *heap, sim_item_t item)
{
    size_t  i;

    if (heap->used == heap->size) {
        heap->size = heap->size ? 2 * heap->size : 1024;
        heap->items = realloc(heap->items, heap->size * sizeof(sim_item_t));

        if (heap->items == NULL) {
            sim_die("memory", "");
        }
    }

    for (i = heap->used++; i; i = (i - 1) / 2) {

        if (!sim_before(&item, &heap->items[(i - 1) / 2])) {
            break;
        }

        heap->items[i] = heap->items[(i - 1) / 2];
    }

    heap->items[i] = item;
}


unsigned
sim_heap_pop(sim_heap_t *heap, sim_item_t *item)
{
    size_t       i, child;
    sim_item_t  *items, *last;

    if (heap->used == 0) {
        return 0;
    }

    items = heap->items;
    *item = items[0];
    last = &items[--heap->used];

    for (i = 0; ; i = child) {
        child = 2 * i + 1;

        if (child + 1 < heap->used
            && sim_before(&items[child + 1], &items[child]))
        {
            child++;
        }

        if (child >= heap->used || !sim_before(&items[child], last)) {
            break;
        }

        items[i] = items[child];
    }

    items[i] = *last;

    return 1;
}


static unsigned
sim_before(const sim_item_t *a, const sim_item_t *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}
