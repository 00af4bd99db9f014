/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections accepted and not proven yet.
 *
 * So that silent ones keep nobody out: an interface has so many places, and all
 * interfaces of the process together a part of the descriptors that it may
 * have.  Where the places are taken, the source with the most of them (a host,
 * a /64 of IPv6, a user of this host) gives up the one that has been silent
 * longest, once that had time to speak.
 */
#ifndef WEFT_DEVICES_UNPROVEN_H
#define WEFT_DEVICES_UNPROVEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "util/list.h"

#define WEFT_UNPROVEN_SOURCES	64  /* told apart, by a hash */
#define WEFT_UNPROVEN_SPARED_MS 250 /* has a place for so long at least */

struct weft_unproven {
	struct weft_list link; /* weft_unproven_set.silent */
	unsigned int source;
	uint64_t since_ms; /* it came, or spoke last */
};

/* Those of one interface. */
struct weft_unproven_set {
	struct weft_list silent; /* the longest first */
	unsigned int n, max;
	unsigned int of[WEFT_UNPROVEN_SOURCES];
	uint64_t salt; /* nobody can choose whom he shares with */
};

/* @max: places of this interface. */
void weft_unproven_init(struct weft_unproven_set *s, unsigned int max);
bool weft_unproven_full(const struct weft_unproven_set *s);
/* Who is to make room; NULL: nobody yet. */
struct weft_unproven *weft_unproven_oldest(const struct weft_unproven_set *s);
/*
 * Is there a place for the next one, by making one if need be?  A place is made
 * only where somebody waits at @listen_fd.  @read reads what it has
 * sent by now, since it may be us who did not look; if that is no message, @end
 * closes it.  Both may call weft_unproven_del(), neither may free it.
 */
bool weft_unproven_make_room(struct weft_unproven_set *s, int listen_fd,
			     void (*read)(struct weft_unproven *st),
			     void (*end)(struct weft_unproven *st));

/* Accepted on the socket @fd.  Returns its deadline for the first message. */
uint64_t weft_unproven_add(struct weft_unproven_set *s,
			   struct weft_unproven *st, int fd);
/* A message of its hello is whole.  Returns its deadline for the rest. */
uint64_t weft_unproven_received(struct weft_unproven_set *s,
				struct weft_unproven *st);
/* Proven, or gone. */
void weft_unproven_del(struct weft_unproven_set *s, struct weft_unproven *st);

/*
 * May a peer that has proven itself be connected to the interface @name, which
 * has @n connections?  Whoever accepts has no say in who comes, and the last
 * quarter of the descriptors is the program's: false, and one warning.
 */
bool weft_peer_has_room(size_t n, const char *name);

#endif
