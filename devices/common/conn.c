/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/common/conn.h"

#include <errno.h>
#include <stdlib.h>

#include "devices/common/base.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/secret.h"
#include "util/util.h"

/* The legal transitions. */
static const struct {
	const char *name;
	unsigned int next; /* BIT() of each next state */
} states[] = {
	[WEFT_CONN_DIALING] = { "dialing", BIT(WEFT_CONN_WAITING) |
						   BIT(WEFT_CONN_JOINING) |
						   BIT(WEFT_CONN_BROKEN) |
						   BIT(WEFT_CONN_CLOSED) },
	[WEFT_CONN_WAITING] = { "waiting", BIT(WEFT_CONN_DIALING) |
						   BIT(WEFT_CONN_JOINING) |
						   BIT(WEFT_CONN_BROKEN) |
						   BIT(WEFT_CONN_CLOSED) },
	[WEFT_CONN_JOINING] = { "joining", BIT(WEFT_CONN_OPEN) |
						   BIT(WEFT_CONN_BROKEN) |
						   BIT(WEFT_CONN_CLOSED) },
	[WEFT_CONN_OPEN] = { "open",
			     BIT(WEFT_CONN_BROKEN) | BIT(WEFT_CONN_CLOSED) },
	[WEFT_CONN_BROKEN] = { "broken", BIT(WEFT_CONN_CLOSED) },
	[WEFT_CONN_CLOSED] = { "closed", 0 },
};

void weft_conn_set_state(struct weft_conn *conn, enum weft_conn_state to)
{
	if (!(states[conn->state].next & BIT(to))) {
		weft_error(
			"internal: the connection to peer %016llx is %s and cannot become %s; please report this",
			(unsigned long long)conn->peer_id,
			states[conn->state].name, states[to].name);
		return;
	}
	weft_debug("peer %016llx/%u: %s -> %s",
		   (unsigned long long)conn->peer_id, conn->number,
		   states[conn->state].name, states[to].name);
	conn->state = to;
	if (to >= WEFT_CONN_OPEN)
		weft_list_del(&conn->meet_link);
}

void weft_conn_begin(struct weft_conn *conn, struct weft_base *base,
		     uint64_t peer_id, uint32_t number)
{
	weft_list_init(&conn->work_link);
	weft_list_init(&conn->meet_link);
	conn->base = base;
	conn->peer_id = peer_id;
	conn->number = number;
}

void weft_conn_attend(struct weft_conn *conn)
{
	if (conn->state != WEFT_CONN_CLOSED &&
	    weft_list_empty(&conn->work_link))
		weft_list_add_tail(&conn->base->work, &conn->work_link);
}

static uint64_t id_key(uint64_t peer_id, uint32_t number)
{
	return peer_id + number * 0x9e3779b97f4a7c15;
}

int weft_conn_init(struct weft_conn *conn, struct weft_session *s,
		   const struct weft_address *remote, uint64_t peer_id,
		   uint32_t number)
{
	struct weft_base *base = container_of(s, struct weft_base, session);

	weft_conn_begin(conn, base, peer_id, number);
	conn->session = s;
	if (remote) {
		conn->remote = weft_secret_alloc(sizeof(*conn->remote));
		if (!conn->remote)
			return -ENOMEM;
		*conn->remote = *remote;
	}
	if (weft_table_add(&s->conns, &conn->by_id, id_key(peer_id, number))) {
		weft_secret_free(conn->remote, sizeof(*conn->remote));
		return -ENOMEM;
	}
	weft_list_add_tail(&s->meeting, &conn->meet_link);
	weft_events_wake_at(s->events, weft_now_ms() + WEFT_TICK_MS);
	return 0;
}

void weft_conn_fini(struct weft_conn *conn)
{
	weft_table_del(&conn->session->conns, &conn->by_id);
	weft_list_del(&conn->work_link);
	weft_list_del(&conn->meet_link);
	weft_secret_free(conn->remote, sizeof(*conn->remote));
	free(conn->hello);
}

/* Skips connections that are ending: their numbers may be dialled again. */
static struct weft_conn *match(struct weft_entry *e, uint64_t peer_id,
			       uint32_t number)
{
	struct weft_conn *c;

	for (; e; e = weft_table_next(e)) {
		c = container_of(e, struct weft_conn, by_id);
		if (c->peer_id == peer_id && c->number == number &&
		    c->state < WEFT_CONN_BROKEN && !c->err && !c->bye_sent &&
		    !c->bye_received)
			return c;
	}
	return NULL;
}

static struct weft_conn *find_first(struct weft_session *s, uint64_t peer_id,
				    uint32_t number)
{
	/* both ends are this interface's own: they do not compete */
	if (peer_id == s->id)
		return NULL;
	return match(weft_table_find(&s->conns, id_key(peer_id, number)),
		     peer_id, number);
}

static struct weft_conn *find_next(struct weft_conn *c)
{
	return match(weft_table_next(&c->by_id), c->peer_id, c->number);
}

struct weft_conn *weft_conn_find_rival(struct weft_session *s, uint64_t peer_id,
				       uint32_t number)
{
	struct weft_conn *c = find_first(s, peer_id, number);

	while (c && !c->remote && !c->ep)
		c = find_next(c);
	return c;
}

struct weft_conn *weft_conn_adopt(struct weft_session *s, const uint8_t *key,
				  uint32_t number)
{
	const uint64_t peer_id = weft_key_id(key);
	struct weft_conn *c = find_first(s, peer_id, number);

	/*
	 * another one may claim the same id: the hello shows which has the key
	 */
	while (c && !(c->hello && weft_hello_owns(c->hello, key)))
		c = find_next(c);
	if (!c)
		return NULL;
	free(c->hello);
	c->hello = NULL;
	return c;
}
