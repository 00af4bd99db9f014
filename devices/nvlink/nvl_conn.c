/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections: their making, their state, and the mark that one is broken. */
#include <stdlib.h>

#include "bootstrap/settings.h"
#include "devices/conn_state.h"
#include "devices/nvlink/nvl.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/secret.h"

struct nvl_tune nvl_tune = {
	.ring = 32ul << 20,
	.host_ring = 8ul << 20,
	.chunk_min = 1ul << 20,
	.chunk_max = 8ul << 20,
	.idle_ms = 30000,
	.retry_ms = 1000,
};

/* The moves that are legal. */
static const struct weft_conn_state states[] = {
	[NVL_CONN_DIALING] = { "dialing", BIT(NVL_CONN_WAITING) |
						  BIT(NVL_CONN_JOINING) |
						  BIT(NVL_CONN_BROKEN) },
	[NVL_CONN_WAITING] = { "waiting",
			       BIT(NVL_CONN_DIALING) | BIT(NVL_CONN_BROKEN) },
	[NVL_CONN_GREETING] = { "greeting",
				BIT(NVL_CONN_JOINING) | BIT(NVL_CONN_BROKEN) },
	[NVL_CONN_JOINING] = { "joining",
			       BIT(NVL_CONN_OPEN) | BIT(NVL_CONN_BROKEN) },
	[NVL_CONN_OPEN] = { "open", BIT(NVL_CONN_BROKEN) },
	[NVL_CONN_BROKEN] = { "broken", BIT(NVL_CONN_DEAD) },
	[NVL_CONN_DEAD] = { "dead", 0 },
};

void nvl_conn_set_state(struct nvl_conn *conn, enum nvl_conn_state to)
{
	if (!weft_conn_may_move(states, conn->state, to, conn->peer_id,
				conn->sn))
		return;
	if (conn->state == NVL_CONN_GREETING)
		weft_stranger_del(&conn->iface->strangers, &conn->stranger);
	conn->state = to;
}

struct nvl_conn *nvl_conn_new(struct nvl_iface *iface,
			      const struct weft_address *remote,
			      uint64_t peer_id, uint32_t sn)
{
	struct nvl_conn *conn = calloc(1, sizeof(*conn));
	const uint64_t now = weft_now_ms();
	unsigned int i;

	if (!conn)
		return NULL;
	conn->hello = calloc(1, sizeof(*conn->hello));
	if (remote)
		conn->remote = weft_secret_alloc(sizeof(*conn->remote));
	if (!conn->hello || (remote && !conn->remote)) {
		weft_secret_free(conn->remote, sizeof(*conn->remote));
		free(conn->hello);
		free(conn);
		return NULL;
	}
	if (remote)
		*conn->remote = *remote;
	conn->state = remote ? NVL_CONN_DIALING : NVL_CONN_GREETING;
	conn->iface = iface;
	conn->peer_id = peer_id;
	conn->sn = sn;
	conn->fd = -1;
	weft_list_init(&conn->frames_out);
	weft_list_init(&conn->jobs);
	for (i = 0; i < NVL_LOCS; i++)
		conn->paths[i].ring = NVL_NO_RING;
	conn->deadline_ms = now + weft_settings()->connect_timeout_ms;
	iface->due_ms = weft_min(iface->due_ms, now + NVL_STANDSTILL_MS);
	weft_list_add_tail(&iface->conns, &conn->link);
	iface->nconns++;
	return conn;
}

void nvl_conn_break(struct nvl_conn *conn, int err)
{
	if (conn->state == NVL_CONN_BROKEN || conn->state == NVL_CONN_DEAD)
		return;
	nvl_conn_set_state(conn, NVL_CONN_BROKEN);
	conn->err = err;
	conn->deadline_ms = weft_now_ms() + NVL_WATCHDOG_MS;
}
