/* SPDX-License-Identifier: BSD-3-Clause */
/* Marks connections that end; shm_conn.c ends them. */
#include <errno.h>

#include "devices/shm/shm_break.h"
#include "util/clock.h"
#include "util/log.h"

void shm_conn_break(struct shm_conn *conn, int err)
{
	if (conn->base.state >= WEFT_CONN_BROKEN)
		return;
	shm_conn_attend(conn);
	weft_conn_drop_handshakes(&conn->base);
	weft_conn_set_state(&conn->base, WEFT_CONN_BROKEN);
	conn->base.err = err;
	conn->watchdog_ms = weft_now_ms() + WEFT_COPY_WATCHDOG_MS;
}

void shm_conn_told(struct shm_conn *conn)
{
	weft_error(
		"peer %016llx cannot write a put of this process, or read what a get of it names; the connection is closed",
		(unsigned long long)conn->base.peer_id);
	shm_conn_break(conn, -EIO);
}
