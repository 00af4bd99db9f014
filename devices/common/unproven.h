/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unproven connections: accepted, hello not finished.
 *
 * Silent ones must not keep peers out.  Each interface has a limited number of
 * places, and all interfaces of a process share a part of its descriptors.
 * When the places are taken, the source that holds most of them (a host, an
 * IPv6 /64, a user of this host) loses the one that has been silent longest,
 * once that had time to speak.
 */
#ifndef WEFT_DEVICES_COMMON_UNPROVEN_H
#define WEFT_DEVICES_COMMON_UNPROVEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "util/list.h"

#define WEFT_UNPROVEN_SOURCES	64  /* distinguished, by a hash */
#define WEFT_UNPROVEN_SPARED_MS 250 /* keeps its place at least this long */

struct weft_unproven {
	struct weft_list link; /* weft_unproven_set.silent */
	unsigned int source;
	uint64_t since_ms; /* accepted, or last heard from */
};

/* Those of one interface. */
struct weft_unproven_set {
	struct weft_list silent; /* the longest first */
	unsigned int n, max;
	unsigned int of[WEFT_UNPROVEN_SOURCES];
	uint64_t salt; /* hides which sources share a slot */
};

/* @max: places of this interface */
void weft_unproven_init(struct weft_unproven_set *s, unsigned int max);
bool weft_unproven_full(const struct weft_unproven_set *s);
/* The one to drop for a new one; NULL: none yet. */
struct weft_unproven *weft_unproven_oldest(const struct weft_unproven_set *s);
/*
 * Is there a place for the next one?  Makes one if necessary, but only if a
 * connection is waiting at @listen_fd.  @read first reads what the silent one
 * has sent, since this process may have stalled; if that is no message, @end
 * closes it. Both may call weft_unproven_del(), neither may free it.
 */
bool weft_unproven_make_room(struct weft_unproven_set *s, int listen_fd,
			     void (*read)(struct weft_unproven *st),
			     void (*end)(struct weft_unproven *st));

/* @fd was accepted.  Returns the deadline (ms) for its first message. */
uint64_t weft_unproven_add(struct weft_unproven_set *s,
			   struct weft_unproven *st, int fd);
/* A hello message is complete.  Returns the deadline (ms) for the rest. */
uint64_t weft_unproven_received(struct weft_unproven_set *s,
				struct weft_unproven *st);
/* Proven, or closed. */
void weft_unproven_del(struct weft_unproven_set *s, struct weft_unproven *st);

/*
 * May a proven peer connect to the interface @name, which has @n connections?
 * The last quarter of the descriptors is reserved for the program: false, with
 * one warning.
 */
bool weft_peer_has_room(size_t n, const char *name);

#endif
