/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the InfiniBand device makes of a fault, on real devices:
 *   faults [-i] DEVICE DEVICE END END COMMAND
 * Two sides put and send to each other, or only wait ("-i"), while COMMAND is
 * run by the shell, or a fault is made here: "no-receive", the second side
 * posts no more receive requests; "no-qp", it has no queue pair any more, and
 * does not know; "bad-rkey", one WRITE of the first side has another key, which
 * the other's adapter refuses.  Then each side must have come to its END:
 * ERROR:WORDS[;ERROR:WORDS], the name of an errno, and what the first warning
 * about its device says.  "none": both go on for as long as an error would
 * take.
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

#define LIMIT_MS   60000 /* generous: the machine is emulated */
#define QUIET_MS   6000	 /* more than WEFT_PEER_TIMEOUT */
#define SILENCE_MS 5000	 /* WEFT_PEER_TIMEOUT's default */
#define LEN	   65536

struct side {
	const char *name;
	char told[512]; /* the first warning that names it */
	struct weft_iface *iface;
	struct weft_iface_attr attr;
	struct weft_ep *ep;
	uint8_t *mem;
	struct weft_mem *reg;
	uint8_t key[WEFT_RKEY_MAX];
	unsigned int messages, errors;
	int error;
};

struct put_op {
	struct weft_op op;
	bool busy;
};

static const struct weft_dev_ops *const ib = &weft_ib_ops;
static struct side a, b;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_verbs table, real;
static bool starving, forging;
static unsigned int denied, refused; /* by the adapter; puts */
static const struct {
	const char *name;
	int err;
} names[] = {
	{ "ENETDOWN", -ENETDOWN },     { "ETIMEDOUT", -ETIMEDOUT },
	{ "ECONNRESET", -ECONNRESET }, { "EIO", -EIO },
	{ "EPIPE", -EPIPE },	       { "EHOSTUNREACH", -EHOSTUNREACH },
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

static void catch (void *arg, enum weft_level level, const char *file, int line,
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

/* What weft has for a queue pair, so that the real one can go without it. */
struct shown_qp {
	struct ibv_qp qp;    /* first: what weft reads */
	struct ibv_qp *real; /* NULL: gone */
	struct shown_qp *next;
};
static struct shown_qp *shown;

static struct ibv_qp *real_of(struct ibv_qp *qp)
{
	return ((struct shown_qp *)qp)->real;
}

static bool is_of(const struct side *s, const struct ibv_qp *qp)
{
	return !strncmp(qp->context->device->name, s->name,
			strcspn(s->name, ":"));
}

static struct ibv_qp *create_qp(struct ibv_pd *pd,
				struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp = real.create_qp(pd, attr);
	struct shown_qp *s = qp ? calloc(1, sizeof(*s)) : NULL;

	if (!s)
		return NULL;
	s->qp = *qp;
	s->real = qp;
	s->next = shown;
	shown = s;
	return &s->qp;
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return real_of(qp) ? real.modify_qp(real_of(qp), attr, mask) : 0;
}

static int destroy_qp(struct ibv_qp *qp)
{
	struct shown_qp **p = &shown, *s = (struct shown_qp *)qp;
	int err = s->real ? real.destroy_qp(s->real) : 0;

	if (err)
		return err;
	while (*p != s)
		p = &(*p)->next;
	*p = s->next;
	free(s);
	return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	if (!real_of(qp))
		return 0;
	if (forging && is_of(&a, qp) && wr->opcode == IBV_WR_RDMA_WRITE &&
	    wr->num_sge) {
		wr->wr.rdma.rkey ^= 1;
		forging = false;
	}
	return real.post_send(real_of(qp), wr, bad);
}

/* Credits alone would never let it come to a lack of these. */
static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	if (!real_of(qp) || (starving && is_of(&b, qp)))
		return 0;
	return real.post_recv(real_of(qp), wr, bad);
}

static int poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	int i, n = real.poll_cq(cq, max, wc);

	for (i = 0; i < n; i++)
		denied += wc[i].status == IBV_WC_REM_ACCESS_ERR;
	return n;
}

static void hook_verbs(void)
{
	if (!weft_verbs())
		die("no verbs");
	real = table = *weft_verbs();
	table.create_qp = create_qp;
	table.modify_qp = modify_qp;
	table.destroy_qp = destroy_qp;
	table.post_send = post_send;
	table.post_recv = post_recv;
	table.poll_cq = poll_cq;
	weft_verbs_set(&table);
}

/* The peer's process lives, and hears nothing of it. */
static void lose_qps(const struct side *s)
{
	struct shown_qp *q;

	for (q = shown; q; q = q->next)
		if (is_of(s, &q->qp)) {
			if (real.destroy_qp(q->real))
				die("cannot destroy a queue pair");
			q->real = NULL;
		}
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
	refused += status == -EACCES;
}

static void side_open(struct side *s, const char *name)
{
	struct weft_iface_cb cb = {
		.arg = s,
		.on_message = on_message,
		.on_notify = on_notify,
		.on_error = on_error,
		.on_ready = on_ready,
	};
	const struct weft_iface_params params = {
		.netdev = name,
		.family = AF_INET,
		.cb = &cb,
	};

	s->name = name;
	if (ib->iface_open(&params, &s->iface))
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
	struct weft_iov iov = { s->mem, LEN, NULL };
	struct iovec small = { s->mem, 100 };

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
	else if (!strcmp(command, "no-qp"))
		lose_qps(&b);
	else if (!strcmp(command, "bad-rkey"))
		forging = true;
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
	unsigned int before, wanted;
	bool none, good;

	argv += !busy;
	if (argc - !busy != 6) {
		fprintf(stderr,
			"usage: faults [-i] DEVICE DEVICE END END COMMAND\n");
		return 2;
	}
	hook_verbs();
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
	wanted = !strcmp(argv[5], "bad-rkey");
	good = good && denied == wanted && refused == wanted;
	printf("%s - %s%s\n", good ? "ok" : "not ok",
	       busy ? "" : "idle: ", argv[5]);
	print_end(&a);
	print_end(&b);
	if (refused || denied)
		printf("# %u refused, %u by the adapter\n", refused, denied);
	part(&a);
	part(&b);
	return !good;
}
