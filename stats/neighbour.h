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

/*
 * Of this process, as it is now, and its interface in @netns, the
 * weft_netns_id() of its address; 0: its host is unknown.
 */
uint64_t weft_neighbour_word(uint64_t netns);

/* What keeps two from meeting on their host; in pages, so only add at the end.
 */
enum weft_barrier {
	WEFT_BARRIER_NONE,
	WEFT_BARRIER_NO_SHM,
	WEFT_BARRIER_PEER_NO_SHM,
	WEFT_BARRIER_USERS,
	WEFT_BARRIER_NO_FOLDER,
	WEFT_BARRIER_PEER_NO_FOLDER,
	WEFT_BARRIER_FOLDERS,
	WEFT_BARRIER_NO_NCCL,
	WEFT_BARRIER_PEER_NO_NCCL,
	WEFT_BARRIER_NCCL_USERS,
	WEFT_BARRIER_NCCL_PLACES,
};

/* NONE also for two hosts.  @chosen: the settings of one ask for it. */
enum weft_barrier weft_neighbour_barrier(uint64_t own, uint64_t peer,
					 bool *chosen);
/* What it is and what to do, a constant; NULL for NONE and what is no barrier.
 */
const char *weft_barrier_text(unsigned int barrier);

#endif
