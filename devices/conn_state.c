/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/conn_state.h"

#include "util/log.h"
#include "util/util.h"

bool weft_conn_may_move(const struct weft_conn_state *states, unsigned int from,
			unsigned int to, uint64_t id, uint32_t sn)
{
	if (!(states[from].next & BIT(to))) {
		weft_error("internal: the connection to peer %016llx is %s and "
			   "cannot become %s; please report this",
			   (unsigned long long)id, states[from].name,
			   states[to].name);
		return false;
	}
	weft_debug("peer %016llx/%u: %s -> %s", (unsigned long long)id, sn,
		   states[from].name, states[to].name);
	return true;
}
