/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for copies of a peer, to or from memory of this process. */
#include <poll.h>

#include "devices/nvlink/nvl_life.h"
#include "devices/nvlink/nvl_watch.h"
#include "util/clock.h"
#include "util/log.h"

/* Has everything that was submitted before @seq ended?  In any process. */
static bool has_ended(const struct weft_engine_mark *m, uint32_t seq)
{
	return weft_batch_ended(__atomic_load_n(&m->flag, __ATOMIC_ACQUIRE),
				seq) ||
	       weft_batch_ended(atomic_load(&m->finished), seq);
}

/* Is it idle, or at least as far as @seq (once it is not claimed)? */
static bool is_done_until(const struct weft_engine_mark *m, bool *snapped,
			  uint32_t *seq)
{
	if (!*snapped) {
		if (atomic_load(&m->claimed))
			return false;
		*seq = atomic_load(&m->issued);
		*snapped = true;
	}
	return has_ended(m, *seq);
}

static const struct weft_engine_mark *mark_of(const struct nvl_conn *conn,
					      unsigned int i)
{
	const unsigned int page = i / WEFT_STREAMS;

	return (const struct weft_engine_mark *)((const char *)conn->marks +
						 page * WEFT_MARK_PAGE) +
	       i % WEFT_STREAMS;
}

#define MARKS (WEFT_MARK_PAGES * WEFT_STREAMS)

static bool has_hung_up(const struct nvl_conn *conn)
{
	struct pollfd p = { .fd = conn->fd, .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP));
}

/* Its time is over: do not wait for it again, and let it copy no more. */
static void give_up_waiting(struct nvl_conn *conn, const struct nvl_watch *w)
{
	conn->stuck = true;
	nvl_life_end(&conn->life);
	if (!w->gone)
		weft_error(
			"copies of a peer on this host, to or from memory that it has mapped, did not end within %u s",
			WEFT_COPY_WATCHDOG_MS / 1000);
}

bool nvl_watch_have_ended(const struct nvl_conn *conn, struct nvl_watch *w)
{
	for (; conn->marks && w->mark < MARKS; w->mark++) {
		if (!is_done_until(mark_of(conn, w->mark), &w->snapped,
				   &w->seq))
			return false;
		w->snapped = false;
	}
	return true;
}

bool nvl_watch_is_over(struct nvl_conn *conn, struct nvl_watch *w)
{
	const uint64_t now = weft_now_ms();

	if (conn->stuck || nvl_watch_have_ended(conn, w))
		return true;
	if (!w->until_ms)
		w->until_ms = now + WEFT_COPY_WATCHDOG_MS;
	if (!w->gone && has_hung_up(conn)) {
		w->gone = true;
		w->until_ms = weft_min(w->until_ms, now + NVL_GONE_MS);
	}
	if (now <= w->until_ms)
		return false;
	give_up_waiting(conn, w);
	return true;
}
