/* SPDX-License-Identifier: BSD-3-Clause */
/* Both sides of weft check, over the device contract alone. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/check/check.h"
#include "tools/tool.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/util.h"

enum message {
	MSG_HERE = 1, /* address, key: the sender's buffer */
	MSG_PING,     /* any bytes */
	MSG_PONG,     /* the bytes of the PING */
	MSG_FILL,     /* size, seed: fill your buffer */
	MSG_COMPARE,  /* size, seed: compare your buffer */
	MSG_ANSWER,   /* CHECK_ALL_RIGHT, or offset of the first wrong byte */
	MSG_BYE,
	MSG_CARD, /* struct check_card: the sender's GPU; answered likewise */
};

#define HERE_MAX  (8 + WEFT_RKEY_MAX)
#define ORDER_LEN 16

static uint64_t make_word(uint64_t i, uint64_t seed)
{
	return (i + seed) * 0x9e3779b97f4a7c15 ^ seed;
}

static void fill_pattern(uint8_t *to, size_t size, uint64_t seed)
{
	size_t i;

	for (i = 0; i < size; i += 8)
		weft_put_le64(to + i, make_word(i, seed));
}

static uint64_t compare_pattern(const uint8_t *at, size_t size, uint64_t seed)
{
	size_t i;

	for (i = 0; i < size; i += 8)
		if (weft_get_le64(at + i) != make_word(i, seed))
			return i;
	return CHECK_ALL_RIGHT;
}

static void record_error(struct check *c, int err)
{
	if (err && !c->err)
		c->err = err;
}

/* For a buffer of @c, which may be in GPU memory. */
static void fill_buffer(struct check *c, uint8_t *to, size_t size,
			uint64_t seed)
{
	uint8_t *host = c->gpu ? check_gpu_bounce(c->gpu) : to;

	fill_pattern(host, size, seed);
	if (c->gpu)
		record_error(c, check_gpu_copy(c->gpu, to, host, size));
}

static void poison_buffer(struct check *c, uint8_t *to, size_t size)
{
	uint8_t *host = c->gpu ? check_gpu_bounce(c->gpu) : to;

	memset(host, 0xee, size);
	if (c->gpu)
		record_error(c, check_gpu_copy(c->gpu, to, host, size));
}

static uint64_t compare_buffer(struct check *c, const uint8_t *at, size_t size,
			       uint64_t seed)
{
	uint8_t *host;

	if (!c->gpu)
		return compare_pattern(at, size, seed);
	host = check_gpu_bounce(c->gpu);
	memset(host, 0x11, size);
	record_error(c, check_gpu_copy(c->gpu, host, at, size));
	return compare_pattern(host, size, seed);
}

/* Waits for room until the timeout; the device copies @data. */
static int send_message(struct check *c, enum message id, const void *data,
			size_t len)
{
	const struct iovec iov = { (void *)data, len };
	const uint64_t end = weft_now_ms() + c->patience_ms;
	int err;

	if (c->over)
		c = c->over;
	while ((err = c->ops->message(c->ep, (uint8_t)id, &iov, 1)) ==
	       -EAGAIN) {
		if (weft_now_ms() > end)
			return -ETIMEDOUT;
		c->ops->progress(c->iface);
	}
	return err;
}

static void send_answer(struct check *c, uint64_t answer)
{
	uint8_t text[8];

	weft_put_le64(text, answer);
	record_error(c, send_message(c, MSG_ANSWER, text, sizeof(text)));
}

static void run_order(struct check *c, enum message id, const uint8_t *data)
{
	const uint64_t size = weft_get_le64(data);
	const uint64_t seed = weft_get_le64(data + 8);

	if (size > CHECK_BUFFER || size % 8) {
		record_error(c, -EPROTO);
		return;
	}
	if (id == MSG_FILL)
		fill_buffer(c, c->buffer, size, seed);
	send_answer(c, id == MSG_FILL
			       ? CHECK_ALL_RIGHT
			       : compare_buffer(c, c->buffer, size, seed));
}

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	struct check *c = arg;

	if (c->guest && id != MSG_CARD) {
		c = c->guest;
		if (id == MSG_BYE) /* the next message may be for the carrier */
			c->over->guest = NULL;
	}
	if (id == MSG_HERE && len == 8 + c->ops->rkey_len) {
		c->peer_addr = weft_get_le64(data);
		memcpy(c->peer_rkey, (const uint8_t *)data + 8, len - 8);
		c->have_peer = true;
	} else if (id == MSG_PING) {
		record_error(c, send_message(c, MSG_PONG, data, len));
	} else if (id == MSG_PONG) {
		c->answered = true;
	} else if ((id == MSG_FILL || id == MSG_COMPARE) && len == ORDER_LEN) {
		run_order(c, id, data);
	} else if (id == MSG_ANSWER && len == 8) {
		c->answer = weft_get_le64(data);
		c->answered = true;
	} else if (id == MSG_CARD && len == sizeof(c->card)) {
		memcpy(&c->card, data, len);
		c->have_card = true;
	} else if (id == MSG_BYE) {
		c->bye = true;
	} else {
		record_error(c, -EPROTO);
	}
}

static void on_error(void *arg, struct weft_ep *ep, void *user, int err)
{
	record_error(arg, err);
}

static void on_notify(void *arg, uint64_t tag, uint64_t size)
{
}

static void on_ready(void *arg, struct weft_ep *ep, void *user)
{
}

static unsigned int make_progress(struct check *c)
{
	unsigned int n = c->ops->progress(c->iface);

	if (c->over) {
		n += c->over->ops->progress(c->over->iface);
		record_error(c, c->over->err);
	}
	return n;
}

static int arm(struct check *c)
{
	int err = c->ops->arm(c->iface);

	return err || !c->over ? err : c->over->ops->arm(c->over->iface);
}

/* Sleep until a device or the control connection has an event. */
static void sleep_until_event(struct check *c)
{
	struct check *over = c->over ? c->over : c;
	struct pollfd fds[] = {
		{ .fd = c->ops->event_fd(c->iface), .events = POLLIN },
		{ .fd = over->ops->event_fd(over->iface), .events = POLLIN },
		{ .fd = c->control, .events = POLLIN },
	};
	char byte;

	if (arm(c))
		return;
	poll(fds, 3, 100);
	/* no more data comes there: the peer has closed it */
	if (fds[2].revents && read(c->control, &byte, 1) <= 0 && !c->bye) {
		make_progress(c);
		record_error(c, c->bye ? 0 : -ECONNRESET);
	}
}

/*
 * Makes progress; sleeps after many calls without a result, which @idle counts.
 * The first ones spin, for low latency.
 */
static void progress_or_sleep(struct check *c, unsigned int *idle)
{
	if (make_progress(c))
		*idle = 0;
	else if (++*idle >= 1000)
		sleep_until_event(c);
}

static int wait_for(struct check *c, const bool *flag)
{
	uint64_t end = weft_now_ms() + c->patience_ms;
	unsigned int idle = 0;

	while (!*flag && !c->err) {
		progress_or_sleep(c, &idle);
		if (idle && idle % 64 == 0 && weft_now_ms() > end)
			record_error(c, -ETIMEDOUT);
	}
	return *flag ? 0 : c->err;
}

static int report_error(struct check *c, const char *what, int err)
{
	const bool has_ports =
		c->ops != &weft_shm_ops && c->ops != &weft_nvlink_ops;
	const char *advice = "";

	if (err == -EACCES)
		advice = "; is WEFT_SECRET_FILE the same on both hosts?";
	else if (err == -ECONNRESET)
		advice = "; see the other side's own message";
	else if (err == -ECONNREFUSED && has_ports) /* it was listening */
		advice =
			"; see the other side's own message; or a firewall refuses the ports of WEFT_PORT_RANGE";
	else if (err == -ETIMEDOUT && has_ports)
		advice = "; does a firewall drop the ports of WEFT_PORT_RANGE?";
	tool_error("check", "%s: %s%s", what, strerror(-err), advice);
	return err;
}

static int alloc_buffers(struct check *c)
{
	if (c->gpu) {
		c->buffer = check_gpu_buffers(c->gpu, CHECK_BUFFER);
		if (!c->buffer)
			return -ENOMEM;
		c->source = c->buffer + CHECK_BUFFER;
		return 0;
	}
	c->buffer = malloc(CHECK_BUFFER);
	c->source = malloc(CHECK_BUFFER);
	return c->buffer && c->source ? 0
				      : report_error(c, "no memory", -ENOMEM);
}

int check_open(struct check *c, const struct weft_dev_ops *ops,
	       const char *netdev, int family, struct check_gpu *gpu,
	       struct weft_address *own)
{
	const struct weft_iface_cb cb = {
		.arg = c,
		.on_message = on_message,
		.on_notify = on_notify,
		.on_error = on_error,
		.on_ready = on_ready,
	};
	const struct weft_iface_params params = {
		.netdev = netdev,
		.family = family,
		.cb = &cb,
	};
	struct weft_iface_attr attr;
	int err;

	c->ops = ops;
	c->gpu = gpu;
	c->patience_ms = CHECK_PATIENCE_MS;
	err = alloc_buffers(c);
	if (err)
		return err;
	err = ops->iface_open(&params, &c->iface);
	if (err)
		return err; /* the device has logged it */
	ops->iface_query(c->iface, &attr);
	*own = attr.addr;
	err = ops->mem_register(c->buffer, CHECK_BUFFER,
				gpu ? WEFT_MEM_CUDA : WEFT_MEM_HOST, &c->mem);
	return err ? report_error(c, "cannot register memory", err) : 0;
}

int check_connect(struct check *c, const struct weft_address *peer)
{
	uint8_t here[HERE_MAX];
	int err;

	err = c->ops->ep_create(c->iface, peer, NULL, &c->ep);
	if (err)
		return report_error(c, "cannot connect", err);
	weft_put_le64(here, (uint64_t)(uintptr_t)c->buffer);
	c->ops->mem_pack(c->mem, here + 8);
	err = send_message(c, MSG_HERE, here, 8 + c->ops->rkey_len);
	if (!err)
		err = wait_for(c, &c->have_peer);
	return err ? report_error(c, "cannot reach the other side", err) : 0;
}

void check_close(struct check *c)
{
	if (c->ep)
		c->ops->ep_destroy(c->ep);
	if (c->mem)
		c->ops->mem_release(c->mem);
	if (c->iface)
		c->ops->iface_close(c->iface);
	if (!c->gpu) {
		free(c->buffer);
		free(c->source);
	}
	memset(c, 0, sizeof(*c));
}

/* Send, and wait for PONG or ANSWER. */
static int send_query(struct check *c, enum message id, const void *data,
		      size_t len)
{
	int err;

	c->answered = false;
	err = send_message(c, id, data, len);
	return err ? err : wait_for(c, &c->answered);
}

static int send_order(struct check *c, enum message id, size_t size,
		      uint64_t seed)
{
	uint8_t text[ORDER_LEN];

	weft_put_le64(text, size);
	weft_put_le64(text + 8, seed);
	return send_query(c, id, text, sizeof(text));
}

static int compare_times(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

int check_latency(struct check *c, size_t size, double *usec)
{
	static uint64_t times[1000];
	struct weft_iface_attr attr;
	size_t i, warm = 100;
	uint64_t start_move;
	int err = 0;

	c->ops->iface_query(c->iface, &attr);
	size = weft_min(size, attr.max_message);
	memset(c->source, 0x5a, size);
	for (i = 0; i < warm + ARRAY_SIZE(times) && !err; i++) {
		start_move = weft_now_ns();
		err = send_query(c, MSG_PING, c->source, size);
		if (i >= warm)
			times[i - warm] = weft_now_ns() - start_move;
	}
	if (err)
		return report_error(c, "messages are not returned", err);
	qsort(times, ARRAY_SIZE(times), sizeof(times[0]), compare_times);
	*usec = (double)times[ARRAY_SIZE(times) / 2] / 2000;
	return 0;
}

struct move {
	struct weft_op op;
	struct check *c;
	bool done;
};

static void on_move_done(struct weft_op *op, int status)
{
	struct move *m = container_of(op, struct move, op);

	m->done = true;
	record_error(m->c, status);
}

static int start_move(struct check *c, enum check_way way, size_t size,
		      struct move *m)
{
	const uint64_t end = weft_now_ms() + c->patience_ms;
	const struct weft_iov iov = { c->source, size, NULL };
	int err;

	m->op.done = on_move_done;
	m->c = c;
	m->done = false;
	do {
		err = way == CHECK_PUT
			      ? c->ops->put(c->ep, &iov, 1, c->peer_addr,
					    c->peer_rkey, NULL, &m->op)
			      : c->ops->get(c->ep, &iov, 1, c->peer_addr,
					    c->peer_rkey, &m->op);
		if (err == -EAGAIN)
			make_progress(c);
	} while (err == -EAGAIN && !c->err && weft_now_ms() < end);
	return err == -EINPROGRESS ? 0 : err ? err : -EPROTO;
}

/* On error no operation may be left with the device. */
static int finish_move(struct check *c, struct move *m)
{
	const int err = wait_for(c, &m->done);

	if (!m->done)
		c->ops->cancel(c->ep);
	return err ? err : c->err;
}

int check_bytes(struct check *c, enum check_way way, size_t size)
{
	const char *what = way == CHECK_PUT ? "put" : "get";
	struct move m;
	int err;

	if (way == CHECK_PUT) {
		/* old contents must not be taken for new ones */
		err = send_order(c, MSG_FILL, size, size + 1);
		fill_buffer(c, c->source, size, size);
	} else {
		err = send_order(c, MSG_FILL, size, size + 2);
		poison_buffer(c, c->source, size);
	}
	if (!err)
		err = start_move(c, way, size, &m);
	if (!err)
		err = finish_move(c, &m);
	if (!err && way == CHECK_PUT)
		err = send_order(c, MSG_COMPARE, size, size);
	else if (!err)
		c->answer = compare_buffer(c, c->source, size, size + 2);
	err = err ? err : c->err;
	if (err)
		return report_error(c, what, err);
	if (c->answer != CHECK_ALL_RIGHT) {
		tool_error(
			"check",
			"%s of %zu bytes: byte %llu is wrong; please report this",
			what, size, (unsigned long long)c->answer);
		return -EBADMSG;
	}
	return 0;
}

int check_speed(struct check *c, enum check_way way, size_t size,
		double *bandwidth)
{
	const uint64_t begin = weft_now_ns(), span = 50 * 1000000ull;
	struct move moves[CHECK_WINDOW];
	uint64_t started = 0, finished = 0;
	int err = 0;

	/* as many as fit into the time, but at least one window */
	while (!err &&
	       (weft_now_ns() - begin < span || started < CHECK_WINDOW)) {
		if (started - finished == CHECK_WINDOW)
			err = finish_move(c, &moves[finished++ % CHECK_WINDOW]);
		if (!err) {
			err = start_move(c, way, size,
					 &moves[started % CHECK_WINDOW]);
			started += !err;
		}
	}
	while (finished < started) {
		const int e = finish_move(c, &moves[finished++ % CHECK_WINDOW]);

		err = err ? err : e;
	}
	if (err)
		return report_error(c, way == CHECK_PUT ? "put" : "get", err);
	*bandwidth = (double)(finished * size) * 1e9 /
		     (double)(weft_now_ns() - begin);
	return 0;
}

int check_bye(struct check *c)
{
	bool flushed = false;
	int err = send_message(c, MSG_BYE, NULL, 0);

	if (c->over)
		c = c->over;
	while (!err && !flushed) {
		err = c->ops->flush(c->ep, NULL);
		flushed = !err;
		if (err == -EINPROGRESS) {
			c->ops->progress(c->iface);
			err = c->err;
		}
	}
	return err;
}

int check_send_card(struct check *c, const struct check_card *own)
{
	return send_message(c, MSG_CARD, own, sizeof(*own));
}

int check_swap_cards(struct check *c, const struct check_card *own)
{
	int err;

	c->have_card = false;
	c->patience_ms = CHECK_CARD_MS;
	err = check_send_card(c, own);
	if (!err)
		err = wait_for(c, &c->have_card);
	c->patience_ms = CHECK_PATIENCE_MS;
	return err ? report_error(c, "the other side does not report its GPU",
				  err)
		   : 0;
}

int check_serve(struct check *c)
{
	unsigned int idle = 0;

	while (!c->bye && !c->err) {
		progress_or_sleep(c, &idle);
		if (c->have_card && !c->gpu)
			check_serve_gpu(c);
		c->have_card = false;
	}
	return c->bye ? 0 : c->err;
}
