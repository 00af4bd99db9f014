/* SPDX-License-Identifier: BSD-3-Clause */
/* The states of a connection, as a table of the moves that are legal. */
#ifndef WEFT_DEVICES_CONN_STATE_H
#define WEFT_DEVICES_CONN_STATE_H

#include <stdbool.h>
#include <stdint.h>

struct weft_conn_state {
	const char *name;
	unsigned int next; /* BIT() of each state that may follow */
};

/*
 * May the connection with number @sn to peer @id go from one of @states to
 * another?  Logs the move; false: it is not legal, and an error is logged.
 */
bool weft_conn_may_move(const struct weft_conn_state *states, unsigned int from,
			unsigned int to, uint64_t id, uint32_t sn);

#endif
