/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections: their making, and the mark that one is broken. */
#include <errno.h>
#include <stdlib.h>

#include "devices/nvlink/nvl_inbox.h"
#include "util/clock.h"
#include "util/log.h"

struct nvl_tune nvl_tune = {
	.ring = 32ul << 20,
	.host_ring = 8ul << 20,
	.chunk_min = 1ul << 20,
	.chunk_max = 8ul << 20,
	.idle_ms = 30000,
	.retry_ms = 1000,
};

struct nvl_conn *nvl_conn_new(struct nvl_iface *iface,
			      const struct weft_address *remote,
			      uint64_t peer_id, uint32_t number)
{
	struct nvl_conn *conn = calloc(1, sizeof(*conn));
	unsigned int i;

	if (!conn)
		return NULL;
	if (weft_conn_init(&conn->base, &iface->base.session, remote, peer_id,
			   number)) {
		free(conn);
		return NULL;
	}
	conn->iface = iface;
	conn->fd = -1;
	weft_list_init(&conn->frames_out);
	weft_list_init(&conn->transfers);
	weft_list_init(&conn->directs);
	weft_list_init(&conn->direct_waiting);
	weft_list_init(&conn->view_list);
	weft_list_init(&conn->imports);
	weft_list_init(&conn->grants);
	weft_list_init(&conn->fetches);
	for (i = 0; i < NVL_LOCS; i++)
		conn->paths[i].ring = NVL_NO_RING;
	weft_list_add_tail(&iface->conns, &conn->link);
	return conn;
}

void nvl_conn_break(struct nvl_conn *conn, int err)
{
	if (conn->base.state >= WEFT_CONN_BROKEN)
		return;
	weft_conn_drop_handshakes(&conn->base);
	weft_conn_set_state(&conn->base, WEFT_CONN_BROKEN);
	conn->base.err = err;
	conn->watchdog_ms = weft_now_ms() + WEFT_COPY_WATCHDOG_MS;
}

void nvl_conn_fail(struct nvl_conn *conn, const char *what)
{
	if (conn->base.state != WEFT_CONN_OPEN)
		return;
	weft_error(
		"cannot %s (peer %016llx): its key was revoked or does not cover it, the memory cannot be accessed, or the GPU has failed; the connection is closed",
		what, (unsigned long long)conn->base.peer_id);
	conn->failed = true;
	nvl_msg_fail(conn);
	nvl_conn_break(conn, -EIO);
}

void nvl_conn_told(struct nvl_conn *conn)
{
	weft_error(
		"peer %016llx cannot access memory that a put or get names; the connection is closed",
		(unsigned long long)conn->base.peer_id);
	conn->failed = true;
	nvl_conn_break(conn, -EIO);
}
