/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Why two processes of one host go over TCP.  Each tells the other a word about
 * itself with a connection's hello; it decides nothing, and serves a message.
 */
#ifndef WEFT_STATS_NEIGHBOUR_H
#define WEFT_STATS_NEIGHBOUR_H

#include <stdbool.h>
#include <stdint.h>

/*
 * This process has a device by which peers of its host meet: in the run folder
 * with that id, 0: in none.  Under NCCL: it is introduced, as @place.
 */
void weft_neighbour_meets(uint64_t place);

/* Of this process, as it is now; 0: its host is unknown. */
uint64_t weft_neighbour_word(void);

/*
 * What keeps the two from meeting on their host, and what to do, a constant
 * text; NULL: they are not of one host, or nothing keeps them.  @chosen: the
 * settings of one ask for it.
 */
const char *weft_neighbour_barrier(uint64_t own, uint64_t peer, bool *chosen);

#endif
