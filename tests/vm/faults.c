/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the InfiniBand device makes of a fault, on real devices:
 *   faults [-i] DEVICE DEVICE END END COMMAND
 * Two sides put and send to each other, or only wait ("-i"), while COMMAND is
 * run by the shell; "no-receive" is a fault made here: the second side posts no
 * more receive requests.  Then each side must have come to its END:
 * ERROR:WORDS[;ERROR:WORDS], the name of an errno, and what the first warning
 * about its device says.  "none": both go on for as long as an error would take.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/device.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/verbs.h"

#define LIMIT_MS 60000	/* generous: the machine is emulated */
#define QUIET_MS 6000	/* more than WEFT_PEER_TIMEOUT */
#define SILENCE_MS 5000	/* WEFT_PEER_TIMEOUT's default */
#define LEN	 65536

struct side {
	const char *name;
	char told[512];		/* the first warning that names it */
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
static struct side a, b;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_verbs table;
static int (*real_post_recv)(struct ibv_qp *, struct ibv_recv_wr *,
			     struct ibv_recv_wr **);
static bool starving;
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

static void note(struct side *s, const char *text)
{
	char quoted[80];

	snprintf(quoted, sizeof(quoted), "'%s'", s->name);
	if (!*s->told && strstr(text, quoted))
		snprintf(s->told, sizeof(s->told), "%s", text);
}

static void catch(void *arg, enum weft_level level, const char *file, int line,
		  const char *text)
{
	(void)arg;
	(void)level;
	(void)file;
	(void)line;
	pthread_mutex_lock(&log_lock);
	note(&a, text);
	note(&b, text);
	pthread_mutex_unlock(&log_lock);
}

/* Credits alone would never let it come to that. */
static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	const size_t len = strcspn(b.name, ":");

	if (starving && !strncmp(qp->context->device->name, b.name, len))
		return 0;
	return real_post_recv(qp, wr, bad);
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

	s->name = name;
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

static int error_named(const char *text, size_t len)
{
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strlen(names[i].name) == len &&
		    !strncmp(names[i].name, text, len))
			return names[i].err;
	die("no such error");
	return 0;
}

/* Has it come to one of these ends, and within the time it was given? */
static bool expected(const char *ends, const struct side *s)
{
	static const char silent[] = "no answer for ";
	const char *colon, *ms = strstr(s->told, silent);
	char words[128];
	size_t len;

	if (ms && atoi(ms + sizeof(silent) - 1) > SILENCE_MS)
		return false;
	for (; *ends; ends += !!*ends) {
		colon = ends + strcspn(ends, ":");
		len = strcspn(colon, ";");
		snprintf(words, sizeof(words), "%.*s", (int)len - 1, colon + 1);
		if (s->error == error_named(ends, (size_t)(colon - ends)) &&
		    strstr(s->told, words))
			return true;
		ends = colon + len;
	}
	return false;
}

static void run(bool busy, uint64_t ms)
{
	static struct put_op p[2] = { { .op.done = put_done },
				      { .op.done = put_done } };
	uint64_t end = weft_now_ms() + ms;

	while (weft_now_ms() < end && !(a.errors && b.errors)) {
		ib->progress(a.iface);
		ib->progress(b.iface);
		if (busy) {
			keep_busy(&a, &b, &p[0]);
			keep_busy(&b, &a, &p[1]);
		}
	}
}

static void meet(const char *one, const char *other)
{
	const uint64_t start = weft_now_ms();

	side_open(&a, one);
	side_open(&b, other);
	if (ib->ep_create(a.iface, &b.attr.addr, NULL, &a.ep) ||
	    ib->ep_create(b.iface, &a.attr.addr, NULL, &b.ep))
		die("cannot make endpoints");
	while (!(ib->ready(a.ep) && ib->ready(b.ep))) {
		ib->progress(a.iface);
		ib->progress(b.iface);
		if (weft_now_ms() - start > LIMIT_MS || a.errors || b.errors)
			die("cannot connect");
	}
}

static void part(struct side *s)
{
	ib->ep_destroy(s->ep);
	ib->mem_release(s->reg);
	ib->iface_close(s->iface);
	free(s->mem);
}

static void make_fault(const char *command)
{
	if (!strcmp(command, "no-receive"))
		starving = true;
	else if (system(command))
		die("the command failed");
}

static void print_end(const struct side *s)
{
	printf("# %s: %s%s%s\n", s->name,
	       s->errors ? strerror(-s->error) : "no error",
	       *s->told ? "; " : "", s->told);
}

int main(int argc, char **argv)
{
	bool busy = !(argc > 1 && !strcmp(argv[1], "-i"));
	unsigned int before;
	bool none, good;

	argv += !busy;
	if (argc - !busy != 6) {
		fprintf(stderr, "usage: faults [-i] DEVICE DEVICE END END COMMAND\n");
		return 2;
	}
	if (!weft_verbs())
		die("no verbs");
	table = *weft_verbs();
	real_post_recv = table.post_recv;
	table.post_recv = post_recv;
	weft_verbs_set(&table);
	weft_log_set_sink(catch, NULL);
	none = !strcmp(argv[3], "none");
	meet(argv[1], argv[2]);
	run(true, 500);
	*a.told = *b.told = '\0';
	make_fault(argv[5]);
	before = a.messages + b.messages;
	run(busy, none ? QUIET_MS : LIMIT_MS);
	good = none ? !a.errors && !b.errors && a.messages + b.messages > before
		    : expected(argv[3], &a) && expected(argv[4], &b);
	printf("%s - %s%s\n", good ? "ok" : "not ok", busy ? "" : "idle: ",
	       argv[5]);
	print_end(&a);
	print_end(&b);
	part(&a);
	part(&b);
	return !good;
}
