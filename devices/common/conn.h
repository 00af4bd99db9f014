/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection: the state that two interfaces share for one pair of endpoints.
 * It may outlive the local endpoint while the peer uses its own.
 */
#ifndef WEFT_DEVICES_COMMON_CONN_H
#define WEFT_DEVICES_COMMON_CONN_H

#include <stdbool.h>
#include <stdint.h>
#include "bootstrap/address.h"
#include "bootstrap/hello.h"
#include "util/list.h"
#include "util/table.h"

struct weft_base;
struct weft_base_ep;
struct weft_session;

enum weft_conn_state {
	WEFT_CONN_DIALING, /* dialling, or about to */
	WEFT_CONN_WAITING, /* the peer's own dial was preferred */
	WEFT_CONN_JOINING, /* both sides are proven; the device is not ready yet
			    */
	WEFT_CONN_OPEN,
	WEFT_CONN_BROKEN, /* waits for what is in flight */
	WEFT_CONN_CLOSED,
};

/* The first member of a device's connection. */
struct weft_conn {
	struct weft_base *base;	      /* the interface's */
	struct weft_session *session; /* NULL: of ib */
	struct weft_list work_link;   /* base->work */
	struct weft_list meet_link;   /* session->meeting, until OPEN */
	struct weft_entry by_id;      /* session->conns */
	enum weft_conn_state state;
	uint64_t peer_id;
	uint32_t number; /* of its pair of endpoints */
	bool dialer;
	struct weft_base_ep *ep; /* NULL: none */
	bool ready_owed; /* ready() returned false: call on_ready() when it
			    changes */
	bool had_ep, bye_sent, bye_received;
	int err;		     /* -errno: progress() closes it */
	struct weft_address *remote; /* of the endpoint here; with the key */
	struct weft_hello *hello;    /* accepted, endpoint not known */
	uint64_t neighbour;	     /* accepted: the peer's word, or 0 */
	uint64_t retry_ms;	     /* when to dial next; 0: no dial is due */
	/* pause before the next dial; how earlier ones ended */
	unsigned int pause_ms, hangups, yields;
};

/* Initialises a zeroed connection that does not meet in a session. */
void weft_conn_begin(struct weft_conn *conn, struct weft_base *base,
		     uint64_t peer_id, uint32_t number);
/* Makes the next weft_base_work() look at @conn. */
void weft_conn_attend(struct weft_conn *conn);
/* An illegal transition is logged as an error and not made. */
void weft_conn_set_state(struct weft_conn *conn, enum weft_conn_state to);
/*
 * Initialises one that meets in a session.  @remote: the address of an
 * endpoint, copied, or NULL; -ENOMEM.
 */
int weft_conn_init(struct weft_conn *conn, struct weft_session *s,
		   const struct weft_address *remote, uint64_t peer_id,
		   uint32_t number);
void weft_conn_fini(struct weft_conn *conn);
/*
 * The connection that an endpoint here has, or had, with that peer; NULL: none.
 * Several that peers have dialled may claim the same id: until there is an
 * endpoint here it is unknown which of them has the key.
 */
struct weft_conn *weft_conn_find_rival(struct weft_session *s, uint64_t peer_id,
				       uint32_t number);
/*
 * The connection that the peer with @key has dialled for endpoint @number, if
 * an endpoint here may take it; else NULL.
 */
struct weft_conn *weft_conn_adopt(struct weft_session *s, const uint8_t *key,
				  uint32_t number);

#endif
