/* SPDX-License-Identifier: BSD-3-Clause */
/* Both sides of weft check, over the device contract alone. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/check.h"
#include "tools/tool.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/util.h"

enum message {
	MSG_HERE = 1, /* address, key: where the other may write */
	MSG_PING,     /* any bytes: */
	MSG_PONG,     /* the same back */
	MSG_FILL,     /* size, seed: fill your buffer so */
	MSG_COMPARE,  /* size, seed: is your buffer so? */
	MSG_ANSWER,   /* CHECK_ALL_RIGHT, or where it is not */
	MSG_BYE,
	MSG_CARD, /* struct check_card: a GPU, answered by the other's */
};

#define HERE_MAX  (8 + WEFT_RKEY_MAX)
#define ORDER_LEN 16
#define WINDOW	  8 /* puts or gets under way at once */

static uint64_t word_of(uint64_t i, uint64_t seed)
{
	return (i + seed) * 0x9e3779b97f4a7c15 ^ seed;
}

static void fill(uint8_t *to, size_t size, uint64_t seed)
{
	size_t i;

	for (i = 0; i < size; i += 8)
		weft_put_le64(to + i, word_of(i, seed));
}

static uint64_t compare(const uint8_t *at, size_t size, uint64_t seed)
{
	size_t i;

	for (i = 0; i < size; i += 8)
		if (weft_get_le64(at + i) != word_of(i, seed))
			return i;
	return CHECK_ALL_RIGHT;
}

static void note(struct check *c, int err)
{
	if (err && !c->err)
		c->err = err;
}

/* The same for a buffer of @c, which may be in GPU memory. */
static void buffer_fill(struct check *c, uint8_t *to, size_t size,
			uint64_t seed)
{
	uint8_t *host = c->gpu ? check_gpu_bounce(c->gpu) : to;

	fill(host, size, seed);
	if (c->gpu)
		note(c, check_gpu_copy(c->gpu, to, host, size));
}

static void buffer_poison(struct check *c, uint8_t *to, size_t size)
{
	uint8_t *host = c->gpu ? check_gpu_bounce(c->gpu) : to;

	memset(host, 0xee, size);
	if (c->gpu)
		note(c, check_gpu_copy(c->gpu, to, host, size));
}

static uint64_t buffer_compare(struct check *c, const uint8_t *at, size_t size,
			       uint64_t seed)
{
	uint8_t *host;

	if (!c->gpu)
		return compare(at, size, seed);
	host = check_gpu_bounce(c->gpu);
	memset(host, 0x11, size);
	note(c, check_gpu_copy(c->gpu, host, at, size));
	return compare(host, size, seed);
}

/* Copied by the device; waits for room as long as the peer lives. */
static int send_message(struct check *c, enum message id, const void *data,
			size_t len)
{
	const struct iovec iov = { (void *)data, len };
	const uint64_t end = weft_now_ms() + c->patience_ms;
	int err;

	while ((err = c->ops->message(c->ep, (uint8_t)id, &iov, 1, NULL)) ==
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
	note(c, send_message(c, MSG_ANSWER, text, sizeof(text)));
}

static void got_order(struct check *c, enum message id, const uint8_t *data)
{
	const uint64_t size = weft_get_le64(data);
	const uint64_t seed = weft_get_le64(data + 8);

	if (size > CHECK_BUFFER || size % 8) {
		note(c, -EPROTO);
		return;
	}
	if (id == MSG_FILL)
		buffer_fill(c, c->buffer, size, seed);
	send_answer(c, id == MSG_FILL
			       ? CHECK_ALL_RIGHT
			       : buffer_compare(c, c->buffer, size, seed));
}

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	struct check *c = arg;

	if (id == MSG_HERE && len == 8 + c->ops->rkey_len) {
		c->peer_addr = weft_get_le64(data);
		memcpy(c->peer_rkey, (const uint8_t *)data + 8, len - 8);
		c->have_peer = true;
	} else if (id == MSG_PING) {
		note(c, send_message(c, MSG_PONG, data, len));
	} else if (id == MSG_PONG) {
		c->answered = true;
	} else if ((id == MSG_FILL || id == MSG_COMPARE) && len == ORDER_LEN) {
		got_order(c, id, data);
	} else if (id == MSG_ANSWER && len == 8) {
		c->answer = weft_get_le64(data);
		c->answered = true;
	} else if (id == MSG_CARD && len == sizeof(c->card)) {
		memcpy(&c->card, data, len);
		c->have_card = true;
	} else if (id == MSG_BYE) {
		c->bye = true;
	} else {
		note(c, -EPROTO);
	}
}

static void on_error(void *arg, struct weft_ep *ep, void *user, int err)
{
	note(arg, err);
}

static void on_notify(void *arg, uint64_t tag, uint64_t size)
{
}

static void on_ready(void *arg, struct weft_ep *ep, void *user)
{
}

/* Sleeps until the device or the control connection has something to say. */
static void doze(struct check *c)
{
	struct pollfd fds[] = {
		{ .fd = c->ops->event_fd(c->iface), .events = POLLIN },
		{ .fd = c->control, .events = POLLIN },
	};
	char byte;

	if (c->ops->arm(c->iface))
		return;
	poll(fds, 2, 100);
	/* Nothing is ever said there again: this is its end. */
	if (fds[1].revents && read(c->control, &byte, 1) <= 0 && !c->bye) {
		c->ops->progress(c->iface);
		note(c, c->bye ? 0 : -ECONNRESET);
	}
}

/* Until *@flag; spins first, because latency is being measured. */
static int await(struct check *c, const bool *flag)
{
	uint64_t end = weft_now_ms() + c->patience_ms;
	unsigned int idle = 0;

	while (!*flag && !c->err) {
		if (c->ops->progress(c->iface)) {
			idle = 0;
			continue;
		}
		if (++idle < 1000)
			continue;
		if (idle % 64 == 0 && weft_now_ms() > end)
			note(c, -ETIMEDOUT);
		doze(c);
	}
	return *flag ? 0 : c->err;
}

static int tell(struct check *c, const char *what, int err)
{
	const char *advice = "";

	if (err == -EACCES)
		advice = "; is WEFT_SECRET_FILE the same on both hosts?";
	else if (err == -ECONNRESET)
		advice = "; the other side's own message says why";
	else if (err == -ECONNREFUSED) /* it has listened just before */
		advice = "; the other side's own message says why, or a "
			 "firewall refuses the ports of WEFT_PORT_RANGE";
	else if (err == -ETIMEDOUT)
		advice = "; does a firewall drop the ports of "
			 "WEFT_PORT_RANGE?";
	tool_error("check", "%s: %s%s", what, strerror(-err), advice);
	return err;
}

static int buffers_new(struct check *c)
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
	return c->buffer && c->source ? 0 : tell(c, "no memory", -ENOMEM);
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
		.netdev = netdev, .family = family, .cb = &cb,
	};
	struct weft_iface_attr attr;
	int err;

	c->ops = ops;
	c->gpu = gpu;
	c->patience_ms = CHECK_PATIENCE_MS;
	err = buffers_new(c);
	if (err)
		return err;
	err = ops->iface_open(&params, &c->iface);
	if (err)
		return err; /* the device has told why */
	ops->iface_query(c->iface, &attr);
	*own = attr.addr;
	err = ops->mem_register(c->buffer, CHECK_BUFFER,
				gpu ? WEFT_MEM_CUDA : WEFT_MEM_HOST, &c->mem);
	return err ? tell(c, "cannot register memory", err) : 0;
}

int check_connect(struct check *c, const struct weft_address *peer)
{
	uint8_t here[HERE_MAX];
	int err;

	err = c->ops->ep_create(c->iface, peer, NULL, &c->ep);
	if (err)
		return tell(c, "cannot connect", err);
	weft_put_le64(here, (uint64_t)(uintptr_t)c->buffer);
	c->ops->mem_pack(c->mem, here + 8);
	err = send_message(c, MSG_HERE, here, 8 + c->ops->rkey_len);
	if (!err)
		err = await(c, &c->have_peer);
	return err ? tell(c, "the other side cannot be met", err) : 0;
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

/* Sends, and waits for PONG or ANSWER. */
static int ask(struct check *c, enum message id, const void *data, size_t len)
{
	int err;

	c->answered = false;
	err = send_message(c, id, data, len);
	return err ? err : await(c, &c->answered);
}

static int order(struct check *c, enum message id, size_t size, uint64_t seed)
{
	uint8_t text[ORDER_LEN];

	weft_put_le64(text, size);
	weft_put_le64(text + 8, seed);
	return ask(c, id, text, sizeof(text));
}

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

int check_latency(struct check *c, size_t size, double *usec)
{
	static uint64_t times[1000];
	struct weft_iface_attr attr;
	size_t i, warm = 100;
	uint64_t start;
	int err = 0;

	c->ops->iface_query(c->iface, &attr);
	size = weft_min(size, attr.max_message);
	memset(c->source, 0x5a, size);
	for (i = 0; i < warm + ARRAY_SIZE(times) && !err; i++) {
		start = weft_now_ns();
		err = ask(c, MSG_PING, c->source, size);
		if (i >= warm)
			times[i - warm] = weft_now_ns() - start;
	}
	if (err)
		return tell(c, "messages do not come back", err);
	qsort(times, ARRAY_SIZE(times), sizeof(times[0]), by_value);
	*usec = (double)times[ARRAY_SIZE(times) / 2] / 2000;
	return 0;
}

struct move {
	struct weft_op op;
	struct check *c;
	bool done;
};

static void moved(struct weft_op *op, int status)
{
	struct move *m = container_of(op, struct move, op);

	m->done = true;
	note(m->c, status);
}

static int start(struct check *c, enum check_way way, size_t size,
		 struct move *m)
{
	const uint64_t end = weft_now_ms() + c->patience_ms;
	const struct weft_iov iov = { c->source, size, NULL };
	int err;

	m->op.done = moved;
	m->c = c;
	m->done = false;
	do {
		err = way == CHECK_PUT
			      ? c->ops->put(c->ep, &iov, 1, c->peer_addr,
					    c->peer_rkey, NULL, &m->op)
			      : c->ops->get(c->ep, &iov, 1, c->peer_addr,
					    c->peer_rkey, &m->op);
		if (err == -EAGAIN)
			c->ops->progress(c->iface);
	} while (err == -EAGAIN && !c->err && weft_now_ms() < end);
	return err == -EINPROGRESS ? 0 : err ? err : -EPROTO;
}

/* Nothing may be left with the device when an error is returned. */
static int finish(struct check *c, struct move *m)
{
	const int err = await(c, &m->done);

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
		/* Old contents must not pass for new ones. */
		err = order(c, MSG_FILL, size, size + 1);
		buffer_fill(c, c->source, size, size);
	} else {
		err = order(c, MSG_FILL, size, size + 2);
		buffer_poison(c, c->source, size);
	}
	if (!err)
		err = start(c, way, size, &m);
	if (!err)
		err = finish(c, &m);
	if (!err && way == CHECK_PUT)
		err = order(c, MSG_COMPARE, size, size);
	else if (!err)
		c->answer = buffer_compare(c, c->source, size, size + 2);
	err = err ? err : c->err;
	if (err)
		return tell(c, what, err);
	if (c->answer != CHECK_ALL_RIGHT) {
		tool_error("check",
			   "%s of %zu bytes: byte %llu is wrong; please "
			   "report this",
			   what, size, (unsigned long long)c->answer);
		return -EBADMSG;
	}
	return 0;
}

int check_speed(struct check *c, enum check_way way, size_t size,
		double *bandwidth)
{
	const uint64_t begin = weft_now_ns(), span = 100 * 1000000ull;
	struct move moves[WINDOW];
	uint64_t started = 0, finished = 0;
	int err = 0;

	/* As many as fit into the time, but each window at least once. */
	while (!err && (weft_now_ns() - begin < span || started < WINDOW)) {
		if (started - finished == WINDOW)
			err = finish(c, &moves[finished++ % WINDOW]);
		if (!err) {
			err = start(c, way, size, &moves[started % WINDOW]);
			started += !err;
		}
	}
	while (finished < started) {
		const int e = finish(c, &moves[finished++ % WINDOW]);

		err = err ? err : e;
	}
	if (err)
		return tell(c, way == CHECK_PUT ? "put" : "get", err);
	*bandwidth = (double)(finished * size) * 1e9 /
		     (double)(weft_now_ns() - begin);
	return 0;
}

int check_bye(struct check *c)
{
	bool flushed = false;
	int err = send_message(c, MSG_BYE, NULL, 0);

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
		err = await(c, &c->have_card);
	c->patience_ms = CHECK_PATIENCE_MS;
	return err ? tell(c, "the other side does not tell of its GPU", err)
		   : 0;
}

int check_serve(struct check *c)
{
	while (!c->bye && !c->err) {
		if (!c->ops->progress(c->iface))
			doze(c);
		if (c->have_card && !c->gpu)
			check_serve_gpu(c);
		c->have_card = false;
	}
	return c->bye ? 0 : c->err;
}
