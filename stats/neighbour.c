/* SPDX-License-Identifier: BSD-3-Clause */
#include "stats/neighbour.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "host/host.h"
#include "settings/settings.h"
#include "stats/stats.h"
#include "util/fork.h"
#include "util/hash.h"
#include "util/util.h"

/*
 * The word: flags, and of each of these as many bits of a hash as there is room
 * for.  Two hosts may not look alike; where the rest does, a message is missed.
 */
enum {
	SAID = 1 << 0,	/* so that no word is 0 */
	NCCL = 1 << 1,	/* loaded by it */
	MEETS = 1 << 2, /* weft_neighbour_meets() */
	APART = 1 << 3, /* the user wants no introduction */

	USER_AT = 4,
	PLACE_AT = 10,
	NETNS_AT = 20,
	HOST_AT = 32,
};

static _Atomic bool meets;
static _Atomic uint64_t meeting_place;

static uint64_t part(uint64_t word, unsigned int from, unsigned int to)
{
	return word << (64 - to) >> (64 - to + from);
}

static uint64_t user_of(uint64_t word)
{
	return part(word, USER_AT, PLACE_AT);
}

static uint64_t place_of(uint64_t word)
{
	return part(word, PLACE_AT, NETNS_AT);
}

static uint64_t netns_of(uint64_t word)
{
	return part(word, NETNS_AT, HOST_AT);
}

static uint64_t host_of(uint64_t word)
{
	return part(word, HOST_AT, 64);
}

void weft_neighbour_meets(uint64_t place)
{
	atomic_store(&meeting_place, place);
	atomic_store(&meets, true);
}

/*
 * Equal user ids may be different users outside a user namespace.  A process
 * enters another one before it has threads, if at all, and mostly as a child of
 * who was here: a fork asks again.
 */
static uint64_t user_id(void)
{
	static _Thread_local struct {
		bool known;
		unsigned int forks;
		uint64_t uid, id;
	} last;
	struct {
		uint64_t uid;
		char map[512];
	} user = { .uid = geteuid() };

	if (last.known && last.uid == user.uid && last.forks == weft_forks())
		return last.id;
	weft_host_uid_map(user.map, sizeof(user.map));
	last.id = weft_hash_u64("weft user", &user, sizeof(user));
	last.uid = user.uid;
	last.forks = weft_forks();
	last.known = true;
	return last.id;
}

static uint64_t flags(void)
{
	uint64_t all = SAID;

	if (atomic_load(&meets))
		all |= MEETS;
	if (!strcmp(weft_stats_loaded_by(), "nccl"))
		all |= NCCL;
	if (all & NCCL && weft_settings()->nccl_introduce == WEFT_OFF)
		all |= APART;
	return all;
}

uint64_t weft_neighbour_word(uint64_t netns)
{
	const uint64_t place = atomic_load(&meeting_place);
	uint64_t word = flags();

	if (!weft_host_known())
		return 0;
	word |= part(user_id(), 0, PLACE_AT - USER_AT) << USER_AT;
	/* 0 stands for none */
	word |= weft_max(part(place, 0, NETNS_AT - PLACE_AT), !!place)
		<< PLACE_AT;
	word |= part(netns, 0, HOST_AT - NETNS_AT) << NETNS_AT;
	return word | weft_host_id() << HOST_AT;
}

static const char *const texts[] = {
	[WEFT_BARRIER_NO_SHM] =
		"this process offers no weft_shm; add it to UCX_TLS",
	[WEFT_BARRIER_PEER_NO_SHM] =
		"the peer offers no weft_shm; add it to its UCX_TLS",
	[WEFT_BARRIER_USERS] =
		"the peer runs as another user or in another user namespace, and the network namespaces differ; run both alike",
	[WEFT_BARRIER_NO_FOLDER] =
		"this process can use no run folder, and the network namespaces differ; 'weft info' says why",
	[WEFT_BARRIER_PEER_NO_FOLDER] =
		"the peer can use no run folder, and the network namespaces differ; 'weft info' there says why",
	[WEFT_BARRIER_FOLDERS] =
		"they share neither the run folder nor the network namespace; mount one folder at /run/weft in both containers, or set WEFT_RUN_DIR to it",
	[WEFT_BARRIER_NO_NCCL] =
		"NCCL here is not introduced to other containers; 'weft info nccl' says why",
	[WEFT_BARRIER_PEER_NO_NCCL] =
		"the peer's NCCL is not introduced to other containers; 'weft info nccl' there says why",
	[WEFT_BARRIER_NCCL_USERS] =
		"the peer runs as another user or in another user namespace; run both alike",
	[WEFT_BARRIER_NCCL_PLACES] =
		"they share no run folder, or have other GPUs or NCCL settings; compare 'weft info nccl' of both",
};

const char *weft_barrier_text(unsigned int barrier)
{
	return barrier < ARRAY_SIZE(texts) ? texts[barrier] : NULL;
}

static enum weft_barrier ucx_barrier(uint64_t own, uint64_t peer)
{
	if (!(own & MEETS))
		return WEFT_BARRIER_NO_SHM;
	if (!(peer & MEETS))
		return WEFT_BARRIER_PEER_NO_SHM;
	if (netns_of(own) == netns_of(peer) ||
	    (place_of(own) && place_of(own) == place_of(peer)))
		return WEFT_BARRIER_NONE;
	if (user_of(own) != user_of(peer))
		return WEFT_BARRIER_USERS;
	if (!place_of(own))
		return WEFT_BARRIER_NO_FOLDER;
	if (!place_of(peer))
		return WEFT_BARRIER_PEER_NO_FOLDER;
	return WEFT_BARRIER_FOLDERS;
}

static enum weft_barrier nccl_barrier(uint64_t own, uint64_t peer)
{
	/* NCCL sees one host then; its settings ask for the network */
	if (own & peer & MEETS ? place_of(own) == place_of(peer)
			       : !((own | peer) & MEETS) &&
					 netns_of(own) == netns_of(peer))
		return WEFT_BARRIER_NONE;
	if (!(own & MEETS))
		return WEFT_BARRIER_NO_NCCL;
	if (!(peer & MEETS))
		return WEFT_BARRIER_PEER_NO_NCCL;
	if (user_of(own) != user_of(peer))
		return WEFT_BARRIER_NCCL_USERS;
	return WEFT_BARRIER_NCCL_PLACES;
}

enum weft_barrier weft_neighbour_barrier(uint64_t own, uint64_t peer,
					 bool *chosen)
{
	if (!own || !peer || host_of(own) != host_of(peer) ||
	    (own ^ peer) & NCCL)
		return WEFT_BARRIER_NONE;
	*chosen = own & NCCL ? (own | peer) & APART : !(own & peer & MEETS);
	return own & NCCL ? nccl_barrier(own, peer) : ucx_barrier(own, peer);
}
