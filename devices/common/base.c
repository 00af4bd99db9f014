/* SPDX-License-Identifier: BSD-3-Clause */
#include "devices/common/base.h"

#include <errno.h>

#include "devices/common/forked.h"
#include "util/secret.h"

int weft_base_open(struct weft_base *base, const struct weft_dev_ops *ops,
		   const struct weft_ep_ops *ep_ops,
		   const struct weft_iface_params *params,
		   unsigned int (*on_timer)(struct weft_events *ev,
					    uint64_t now, uint64_t stood))
{
	int err;

	base->iface.ops = ops;
	base->iface.cb = *params->cb;
	base->ep_ops = ep_ops;
	weft_list_init(&base->live_link);
	weft_ep_numbers_init(&base->numbers);
	weft_list_init(&base->work);
	weft_session_init(&base->session, &base->events);
	base->addr = weft_secret_alloc(sizeof(*base->addr));
	if (!base->addr)
		return -ENOMEM;
	base->addr->wire_min = WEFT_WIRE_MIN;
	base->addr->wire_max = WEFT_WIRE_MAX;
	err = weft_random(base->addr->key, WEFT_KEY_LEN);
	if (err)
		return err;
	base->id = weft_key_id(base->addr->key);
	base->session.addr = base->addr;
	base->session.id = base->id;
	err = weft_events_open(&base->events, on_timer);
	weft_forked_watch(base);
	return err;
}

unsigned int weft_base_on_timer(struct weft_events *ev, uint64_t now,
				uint64_t stood)
{
	weft_session_tick(&container_of(ev, struct weft_base, events)->session,
			  now, stood);
	return 0;
}

void weft_base_close(struct weft_base *base)
{
	weft_forked_unwatch(base);
	weft_session_close(&base->session);
	weft_events_close(&base->events);
	weft_bounce_close(&base->bounce);
	weft_stats_close(base->stats);
	weft_ep_numbers_free(&base->numbers);
	weft_secret_free(base->addr, sizeof(*base->addr));
}

void weft_base_forget(struct weft_base *base)
{
	struct weft_handshake *hs, *th;

	weft_list_for_each (hs, th, &base->session.handshakes, link)
		weft_forked_close(&hs->fd);
	weft_forked_close(&base->events.wake_fd);
	weft_forked_close(&base->events.timer_fd);
	if (base->bounce.map)
		weft_forked_close(&base->bounce.fd);
}

void weft_base_count(struct weft_base *base, const char *name)
{
	base->stats = weft_stats_open(base->iface.ops->name, name);
	weft_stats_own_id(base->stats, base->id);
}

unsigned int weft_base_work(struct weft_base *base,
			    unsigned int (*look)(struct weft_conn *conn))
{
	struct weft_list now = base->work;
	struct weft_conn *conn;
	unsigned int n = 0;

	if (weft_list_empty(&base->work))
		return 0;
	now.next->prev = now.prev->next = &now;
	weft_list_init(&base->work);
	while (!weft_list_empty(&now)) {
		conn = weft_list_first(&now, struct weft_conn, work_link);
		weft_list_del(&conn->work_link);
		n += look(conn);
	}
	return n;
}

int weft_base_event_fd(struct weft_iface *iface)
{
	return weft_base(iface)->events.epfd;
}
