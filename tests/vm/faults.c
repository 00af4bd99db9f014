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
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/pair.h"
#include "util/drivers/verbs.h"
#include "util/log.h"

#define LIMIT_MS   60000 /* generous: the machine is emulated */
#define QUIET_MS   6000	 /* more than WEFT_PEER_TIMEOUT */
#define SILENCE_MS 5000	 /* WEFT_PEER_TIMEOUT's default */
#define LEN	   65536

struct port {
	struct side side;
	const char *name;
	char warning[512]; /* the first that names it */
	uint8_t *mem;
	struct weft_mem *reg;
	uint8_t key[WEFT_RKEY_MAX];
};

static const struct weft_dev_ops *const ib = &weft_ib_ops;
static struct port a, b;
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

void fail_at(const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	printf("not ok - ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf(", %s:%d\n", file, line);
	exit(1);
}

static void note(struct port *s, const char *text)
{
	char quoted[80];

	snprintf(quoted, sizeof(quoted), "'%s'", s->name);
	if (!*s->warning && strstr(text, quoted))
		snprintf(s->warning, sizeof(s->warning), "%s", text);
}

static void catch (void *arg, enum weft_level level, const char *file, int line,
		   const char *text)
{
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

static bool is_of(const struct port *s, const struct ibv_qp *qp)
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
	check(weft_verbs(), "no verbs");
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
static void lose_qps(const struct port *s)
{
	struct shown_qp *q;

	for (q = shown; q; q = q->next)
		if (is_of(s, &q->qp)) {
			check_int(real.destroy_qp(q->real), 0);
			q->real = NULL;
		}
}

static void drop_message(struct side *s, uint8_t id, void *data, size_t len)
{
}

static void port_open(struct port *p, const char *name)
{
	p->name = name;
	check_int(side_init(&p->side, ib, name, AF_INET), 0);
	p->side.hook = drop_message;
	p->mem = calloc(1, LEN);
	check_int(ib->mem_register(p->mem, LEN, WEFT_MEM_HOST, &p->reg), 0);
	ib->mem_pack(p->reg, &p->key);
}

static void count_refused(struct wait_op *put)
{
	refused += put->status == -EACCES;
}

/* Keeps one put and one message under way. */
static void keep_busy(struct port *from, struct port *to, struct wait_op *put)
{
	struct weft_iov iov = { from->mem, LEN, NULL };
	struct iovec small = { from->mem, 100 };
	struct wait_op next = WAIT_OP;

	if (from->side.errors)
		return;
	ib->message(from->side.ep, 1, &small, 1);
	if (!put->done)
		return;
	next.hook = count_refused;
	*put = next;
	put->done = ib->put(from->side.ep, &iov, 1, (uintptr_t)to->mem,
			    &to->key, NULL, &put->op) != -EINPROGRESS;
}

static int error_named(const char *text, size_t len)
{
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strlen(names[i].name) == len &&
		    !strncmp(names[i].name, text, len))
			return names[i].err;
	check(false, "no such error");
	return 0;
}

/* Has it come to one of these ends, and not before the time it was given? */
static bool expected(const char *ends, const struct port *s)
{
	static const char silent[] = "no answer for ";
	const char *colon, *ms = strstr(s->warning, silent);
	char words[128];
	size_t len;

	if (ms && atoi(ms + sizeof(silent) - 1) < SILENCE_MS)
		return false;
	for (; *ends; ends += !!*ends) {
		colon = ends + strcspn(ends, ":");
		len = strcspn(colon, ";");
		snprintf(words, sizeof(words), "%.*s", (int)len - 1, colon + 1);
		if (s->side.error ==
			    error_named(ends, (size_t)(colon - ends)) &&
		    strstr(s->warning, words))
			return true;
		ends = colon + len;
	}
	return false;
}

static void run(bool busy, uint64_t ms)
{
	static struct wait_op put[2] = { { .done = 1 }, { .done = 1 } };
	uint64_t end = now_ms() + ms;

	while (now_ms() < end && !(a.side.errors && b.side.errors)) {
		both_progress(&a.side, &b.side);
		if (busy) {
			keep_busy(&a, &b, &put[0]);
			keep_busy(&b, &a, &put[1]);
		}
	}
}

static void meet(const char *one, const char *other)
{
	const uint64_t start = now_ms();

	port_open(&a, one);
	port_open(&b, other);
	check_int(side_dial(&a.side, &b.side), 0);
	check_int(side_dial(&b.side, &a.side), 0);
	while (!(ib->ready(a.side.ep) && ib->ready(b.side.ep))) {
		both_progress(&a.side, &b.side);
		check(now_ms() - start < LIMIT_MS && !a.side.errors &&
			      !b.side.errors,
		      "cannot connect");
	}
}

static void part(struct port *p)
{
	side_close(&p->side);
	ib->mem_release(p->reg);
	free(p->mem);
}

static void make_fault(const char *command)
{
	if (!strcmp(command, "no-receive"))
		starving = true;
	else if (!strcmp(command, "no-qp"))
		lose_qps(&b);
	else if (!strcmp(command, "bad-rkey"))
		forging = true;
	else
		check(!system(command), "the command failed");
}

static void print_end(const struct port *s)
{
	printf("# %s: %s%s%s\n", s->name,
	       s->side.errors ? strerror(-s->side.error) : "no error",
	       *s->warning ? "; " : "", s->warning);
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
	*a.warning = *b.warning = '\0';
	make_fault(argv[5]);
	before = a.side.messages + b.side.messages;
	run(busy, none ? QUIET_MS : LIMIT_MS);
	good = none ? !a.side.errors && !b.side.errors &&
			       a.side.messages + b.side.messages > before
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
