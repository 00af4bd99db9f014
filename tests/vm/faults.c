/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the InfiniBand device makes of a fault, on real devices:
 *   faults DEVICE DEVICE ERROR[,ERROR] COMMAND...
 * Two sides put and send to each other, or only wait ("-i"), while COMMAND is
 * run by the shell; then both must report one of the errors (names of errno;
 * "none": both must go on for as long as an error would take).  Prints how long
 * it took.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/device.h"
#include "util/clock.h"

#define LIMIT_MS 60000	/* generous: the machine is emulated */
#define QUIET_MS 6000	/* more than WEFT_PEER_TIMEOUT */
#define LEN	 65536

struct side {
	struct weft_iface *iface;
	struct weft_iface_attr attr;
	struct weft_ep *ep;
	uint8_t *mem;
	struct weft_mem *reg;
	struct weft_rkey key;
	unsigned int messages, errors;
	int error;
};

struct put_op {
	struct weft_op op;
	bool busy;
	int status;
};

static const struct weft_dev_ops *const ib = &weft_ib_ops;
static const struct { const char *name; int err; } names[] = {
	{ "ENETDOWN", -ENETDOWN }, { "ETIMEDOUT", -ETIMEDOUT },
	{ "ECONNRESET", -ECONNRESET }, { "EIO", -EIO }, { "EPIPE", -EPIPE },
	{ "EHOSTUNREACH", -EHOSTUNREACH },
};

static void die(const char *what)
{
	printf("not ok - %s\n", what);
	exit(1);
}

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	(void)id;
	(void)data;
	(void)len;
	((struct side *)arg)->messages++;
}

static void on_notify(void *arg, uint64_t tag, uint64_t size)
{
	(void)arg;
	(void)tag;
	(void)size;
}

static void on_error(void *arg, struct weft_ep *ep, void *user, int err)
{
	struct side *s = arg;

	(void)ep;
	(void)user;
	s->errors++;
	s->error = err;
}

static void on_ready(void *arg, struct weft_ep *ep, void *user)
{
	(void)arg;
	(void)ep;
	(void)user;
}

static void put_done(struct weft_op *op, int status)
{
	struct put_op *p = (struct put_op *)op;

	p->busy = false;
	p->status = status;
}

static void side_open(struct side *s, const char *name)
{
	struct weft_iface_cb cb = {
		.arg = s, .on_message = on_message, .on_notify = on_notify,
		.on_error = on_error, .on_ready = on_ready,
	};

	memset(s, 0, sizeof(*s));
	if (ib->iface_open(name, AF_INET, &cb, &s->iface))
		die("cannot open the device");
	ib->iface_query(s->iface, &s->attr);
	s->mem = calloc(1, LEN);
	if (ib->mem_register(s->mem, LEN, WEFT_MEM_HOST, &s->reg))
		die("cannot register memory");
	ib->mem_pack(s->reg, &s->key);
}

/* Keeps one put and one message under way. */
static void keep_busy(struct side *s, struct side *to, struct put_op *p)
{
	struct iovec iov = { s->mem, LEN }, small = { s->mem, 100 };

	if (s->errors)
		return;
	ib->message(s->ep, 1, &small, 1, NULL);
	if (p->busy)
		return;
	p->busy = ib->put(s->ep, &iov, 1, (uintptr_t)to->mem, &to->key, NULL,
			  &p->op) == -EINPROGRESS;
}

static bool expected(const char *list, int err)
{
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (names[i].err == err && strstr(list, names[i].name))
			return true;
	return false;
}

static void run(struct side *a, struct side *b, bool busy, uint64_t ms)
{
	static struct put_op p[2] = { { .op.done = put_done },
				      { .op.done = put_done } };
	uint64_t end = weft_now_ms() + ms;

	while (weft_now_ms() < end && !(a->errors && b->errors)) {
		ib->progress(a->iface);
		ib->progress(b->iface);
		if (busy) {
			keep_busy(a, b, &p[0]);
			keep_busy(b, a, &p[1]);
		}
	}
}

int main(int argc, char **argv)
{
	bool busy = !(argc > 1 && !strcmp(argv[1], "-i"));
	struct side a, b;
	uint64_t start;
	bool none, good;
	unsigned int before;

	argv += !busy;
	if (argc - !busy != 5) {
		fprintf(stderr, "usage: faults [-i] DEVICE DEVICE ERRORS COMMAND\n");
		return 2;
	}
	none = !strcmp(argv[3], "none");
	side_open(&a, argv[1]);
	side_open(&b, argv[2]);
	if (ib->ep_create(a.iface, &b.attr.addr, NULL, &a.ep) ||
	    ib->ep_create(b.iface, &a.attr.addr, NULL, &b.ep))
		die("cannot make endpoints");
	start = weft_now_ms();
	while (!(ib->ready(a.ep) && ib->ready(b.ep))) {
		ib->progress(a.iface);
		ib->progress(b.iface);
		if (weft_now_ms() - start > LIMIT_MS || a.errors || b.errors)
			die("cannot connect");
	}
	run(&a, &b, true, 500);
	if (system(argv[4]))
		die("the command failed");
	start = weft_now_ms();
	before = a.messages + b.messages;
	run(&a, &b, busy, none ? QUIET_MS : LIMIT_MS);
	good = none ? !a.errors && !b.errors && a.messages + b.messages > before
		    : expected(argv[3], a.error) && expected(argv[3], b.error);
	printf("%s - %s%s: %s and %s after %llu ms\n", good ? "ok" : "not ok",
	       busy ? "" : "idle: ", argv[4],
	       a.errors ? strerror(-a.error) : "no error",
	       b.errors ? strerror(-b.error) : "no error",
	       (unsigned long long)(weft_now_ms() - start));
	ib->ep_destroy(a.ep);
	ib->ep_destroy(b.ep);
	ib->mem_release(a.reg);
	ib->mem_release(b.reg);
	ib->iface_close(a.iface);
	ib->iface_close(b.iface);
	free(a.mem);
	free(b.mem);
	return !good;
}
