/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer of the shared memory device that has proven itself and then fills the
 * ring, its head and the socket with anything: an interface of our own that
 * makes no progress, whose connection we write by.  Steps of {kind, control,
 * length, bytes}, length at most 96.  control mends the bytes so that more of
 * them get past the first checks.
 *   0  a record               1 its length  2 a known kind
 *                             4 key and address of registered memory
 *                             8 no status above 0
 *   1  a counter of the ring that it fills: {which, value}; 1: added to it
 *   2  a counter of the ring that it reads: {which, value}; 1: added to it
 *   3  a frame                1 a known type  2 a descriptor
 *   4  the program itself puts (0), gets (1) or sends a message (2)
 *   5  time passes
 * Nothing may be written outside the registered memory and what the program
 * gets into, no message may be longer than the interface says, every operation
 * must end once, and so must the endpoint when the peer has gone.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/frame.h"
#include "devices/memfd.h"
#include "devices/shm/shm.h"
#include "util/log.h"

#define GUARD  4096
#define TARGET 8192
#define POISON 0xa5
#define OPS    16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct guarded {
	uint8_t before[GUARD], bytes[TARGET], behind[GUARD];
};

struct fop {
	struct weft_op op;
	unsigned int done;
};

static const struct weft_dev_ops *const dev = &weft_shm_ops;
static struct weft_iface *victim, *liar;
static struct weft_iface_attr attr, liar_attr;
static struct weft_mem *mem;
static struct guarded target, landing;
static struct fop fops[OPS];
static unsigned int nfops, ended, liar_ended;

static void __attribute__((noreturn)) broken(const char *what)
{
	fprintf(stderr, "shm: %s\n", what);
	abort();
}

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	volatile uint8_t *bytes = data;
	uint8_t all = 0;
	size_t i;

	(void)arg;
	if (len > attr.max_message || id >= WEFT_MSG_IDS)
		broken("a message is longer than the interface says");
	for (i = 0; i < len; i++)
		all |= bytes[i];
	(void)all;
}

static void on_notify(void *arg, uint64_t tag, uint64_t size)
{
	(void)arg;
	(void)tag;
	(void)size;
}

static void on_error(void *arg, struct weft_ep *ep, void *user, int err)
{
	(void)ep;
	(void)user;
	(void)err;
	++*(unsigned int *)arg;
}

static void on_ready(void *arg, struct weft_ep *ep, void *user)
{
	(void)arg;
	(void)ep;
	(void)user;
}

static void quiet(void *arg, enum weft_level level, const char *file, int line,
		  const char *text)
{
	(void)arg;
	(void)level;
	(void)file;
	(void)line;
	(void)text;
}

static struct weft_iface *open_iface(unsigned int *errors)
{
	const struct weft_iface_cb cb = { errors, on_message, on_notify,
					  on_error, on_ready };
	const struct weft_iface_params params = { .netdev = "shm", .cb = &cb };
	struct weft_iface *iface;

	if (dev->iface_open(&params, &iface))
		broken("the interface does not open");
	return iface;
}

static void start(void)
{
	weft_log_set_sink(quiet, NULL);
	victim = open_iface(&ended);
	liar = open_iface(&liar_ended);
	dev->iface_query(victim, &attr);
	dev->iface_query(liar, &liar_attr);
	if (dev->mem_register(target.bytes, TARGET, WEFT_MEM_HOST, &mem))
		broken("no memory is registered");
}

static void op_done(struct weft_op *op, int status)
{
	(void)status;
	if (((struct fop *)op)->done++)
		broken("an operation ends twice");
}

/* ---- what it says -------------------------------------------------------- */

static void say_record(struct shm_conn *conn, uint8_t control, const uint8_t *p,
		       size_t n)
{
	struct shm_record r = { 0 };
	struct shm_op op = { 0 };
	size_t at = conn->tx_tail & (SHM_RING - 1), room;

	memcpy(&r, p, weft_min(n, sizeof(r)));
	p += weft_min(n, sizeof(r));
	n -= weft_min(n, sizeof(r));
	if (control & 1)
		r.len = n;
	if (control & 2)
		r.kind = r.kind % SHM_FAIL + 1;
	if (control & 8 && r.status > 0)
		r.status = -r.status;
	room = sizeof(r) + ((n + 15) & ~(size_t)15);
	if (room > SHM_RING - at)
		return; /* no need of the other end */
	memcpy(conn->tx.bytes + at, &r, sizeof(r));
	memcpy(conn->tx.bytes + at + sizeof(r), p, n);
	if (control & 4 && n >= sizeof(op)) {
		memcpy(&op, p, sizeof(op));
		op.slot = mem->rkey.slot;
		op.generation = mem->rkey.generation;
		op.token = mem->rkey.token;
		op.addr = (uintptr_t)target.bytes + op.addr % TARGET;
		memcpy(conn->tx.bytes + at + sizeof(r), &op, sizeof(op));
	}
	conn->tx_tail += room;
	atomic_store(&conn->tx.head->tail, conn->tx_tail);
}

static void set_counter(struct shm_head *head, uint8_t control,
			const uint8_t *p, size_t n)
{
	_Atomic uint64_t *at;
	uint64_t value = 0;

	if (!n)
		return;
	memcpy(&value, p + 1, weft_min(n - 1, sizeof(value)));
	at = (_Atomic uint64_t *)head + *p % (sizeof(*head) / sizeof(value));
	if (control & 1)
		value += atomic_load(at);
	atomic_store(at, value);
}

static void say_frame(struct shm_conn *conn, uint8_t control, const uint8_t *p,
		      size_t n)
{
	struct shm_frame f = { 0 };
	int fd = control & 2 ? weft_memfd_make("liar", SHM_SIZE) : -1;

	memcpy(&f, p, weft_min(n, sizeof(f)));
	if (control & 1) {
		f.magic = SHM_FRAME_MAGIC;
		f.type = f.type % (SHM_FRAME_TYPES - 1) + 1;
	}
	weft_frame_send(conn->fd, &f, sizeof(f), fd);
	if (fd >= 0)
		close(fd);
}

static void act(struct weft_ep *ep, uint8_t control, const uint8_t *p, size_t n)
{
	struct weft_iov iov = { target.bytes, TARGET, NULL };
	struct iovec message = { target.bytes, 64 };
	uint8_t key[WEFT_RKEY_MAX];
	struct fop *f = &fops[nfops];
	int r;

	dev->mem_pack(mem, key);
	memcpy(key, p, weft_min(n, dev->rkey_len));
	if (ended || nfops == OPS || !dev->ready(ep))
		return;
	f->op.done = op_done;
	f->done = 0;
	if (control % 3 == 0) {
		r = dev->put(ep, &iov, 1, 4096, key, NULL, &f->op);
	} else if (control % 3 == 1) {
		iov.addr = landing.bytes;
		r = dev->get(ep, &iov, 1, 4096, key, &f->op);
	} else {
		dev->message(ep, 1, &message, 1, NULL);
		return;
	}
	if (r == -EINPROGRESS)
		nfops++;
}

static void say(struct shm_conn *conn, struct weft_ep *ep, const uint8_t *data,
		size_t size)
{
	size_t n;

	for (; size >= 3; data += 3 + n, size -= 3 + n) {
		n = weft_min((size_t)data[2] % 97, size - 3);
		switch (data[0] % 6) {
		case 0:
			say_record(conn, data[1], data + 3, n);
			break;
		case 1:
			set_counter(conn->tx.head, data[1], data + 3, n);
			break;
		case 2:
			set_counter(conn->rx.head, data[1], data + 3, n);
			break;
		case 3:
			say_frame(conn, data[1], data + 3, n);
			break;
		case 4:
			act(ep, data[1], data + 3, n);
			break;
		default:
			dev->progress(victim);
			/* it must not sleep over what it has not seen */
			dev->arm(victim);
		}
	}
}

static bool poisoned(const uint8_t *p)
{
	size_t i;

	for (i = 0; i < GUARD && p[i] == POISON; i++)
		;
	return i == GUARD;
}

static void check(void)
{
	unsigned int i;

	if (ended != 1)
		broken("the endpoint does not end once");
	for (i = 0; i < nfops; i++)
		if (!fops[i].done)
			broken("an operation does not end");
	if (!poisoned(target.before) || !poisoned(target.behind) ||
	    !poisoned(landing.before) || !poisoned(landing.behind))
		broken("memory that nobody gave was written");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct weft_ep *ep, *lies;
	struct shm_conn *conn;
	int i;

	if (!victim)
		start();
	memset(&target, POISON, sizeof(target));
	memset(&landing, POISON, sizeof(landing));
	nfops = ended = liar_ended = 0;
	if (dev->ep_create(liar, &attr.addr, NULL, &lies) ||
	    dev->ep_create(victim, &liar_attr.addr, NULL, &ep))
		broken("no endpoint is made");
	for (i = 0; i < 100000 && !(dev->ready(lies) && dev->ready(ep)); i++) {
		dev->progress(victim);
		dev->progress(liar);
	}
	if (!dev->ready(lies))
		broken("they do not meet");
	conn = shm_conn(weft_ep_conn(lies));
	say(conn, ep, data, size);
	for (i = 0; i < 8; i++)
		dev->progress(victim);
	shutdown(conn->fd, SHUT_RDWR);
	/* within its own number of looks: nothing here takes time */
	for (i = 0; i < 1000 && !(ended && liar_ended); i++) {
		dev->progress(victim);
		dev->progress(liar);
	}
	dev->ep_destroy(ep);
	dev->ep_destroy(lies);
	check();
	for (i = 0; i < 4; i++)
		dev->progress(victim);
	return 0;
}
