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
 *   3  a frame                1 a known type  2 a descriptor  4 of a window
 *   4  the program itself puts (0), gets (1) or sends a message (2)
 *   5  time passes        1 and it does not try to sleep
 * Nothing may be written outside the registered memory and what the program
 * gets into, no message may be longer than the interface says, every operation
 * must end once, and so must the endpoint when the peer has gone.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "devices/local/frame.h"
#include "devices/common/memfd.h"
#include "devices/shm/shm_ring.h"
#include "tests/fuzz/victim.h"
#include "tests/lib/quiet.h"
#include "util/clock.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct weft_dev_ops *const dev = &weft_shm_ops;
static struct weft_iface *iface, *liar;
static struct weft_iface_attr attr, liar_attr;
static unsigned int liar_ended;

static struct weft_iface *open_iface(unsigned int *errors)
{
	struct weft_iface_cb cb = victim_cb;
	const struct weft_iface_params params = { .netdev = "shm", .cb = &cb };
	struct weft_iface *made;

	cb.arg = errors;
	if (dev->iface_open(&params, &made))
		victim_broken("the interface does not open");
	return made;
}

/* System calls come with time, not with calls of progress() alone. */
static uint64_t pass_time(void)
{
	static uint64_t now = 1;

	return now += SHM_POLL_NS;
}

static void start(void)
{
	log_quiet();
	weft_clock_set(pass_time);
	victim.name = "shm";
	victim.dev = dev;
	iface = open_iface(&victim_ended);
	liar = open_iface(&liar_ended);
	dev->iface_query(iface, &attr);
	dev->iface_query(liar, &liar_attr);
	victim.max_message = attr.max_message;
	if (dev->mem_register(victim_memory, VICTIM_MEMORY, WEFT_MEM_HOST,
			      &victim.mem))
		victim_broken("no memory is registered");
}

/* ---- what it says -------------------------------------------------------- */

static void say_record(struct shm_conn *conn, uint8_t control, const uint8_t *p,
		       size_t n)
{
	struct shm_record r = { 0 };
	struct shm_op op = { 0 };
	struct shm_ring *ring = &conn->tx;
	uint8_t *at = ring->bytes + ring->at;
	enum shm_which in = ring->in;

	memcpy(&r, p, weft_min(n, sizeof(r)));
	p += weft_min(n, sizeof(r));
	n -= weft_min(n, sizeof(r));
	if (control & 1)
		r.len = n;
	if (control & 2)
		r.kind = r.kind % (SHM_KINDS - 1) + 1;
	if (control & 8 && r.status > 0)
		r.status = -r.status;
	if (shm_record_size(n) > shm_ring_to_end(ring))
		return; /* no need of the other end */
	memcpy(at, &r, sizeof(r));
	memcpy(at + sizeof(r), p, n);
	shm_ring_clear(ring, shm_ring_behind(ring, n));
	if (control & 4 && n >= sizeof(op)) {
		memcpy(&op, p, sizeof(op));
		op.slot = victim.mem->rkey.slot;
		op.generation = victim.mem->rkey.generation;
		op.token = victim.mem->rkey.token;
		op.addr = (uintptr_t)victim_memory + op.addr % VICTIM_MEMORY;
		memcpy(at + sizeof(r), &op, sizeof(op));
	}
	ring->tail[in] += shm_record_size(n);
	if (r.kind == SHM_SWITCH && r.id < SHM_RINGS)
		in = r.id;
	shm_ring_turn_to(ring, in, ring->tail[in]);
}

static void say_frame(struct shm_conn *conn, uint8_t control, const uint8_t *p,
		      size_t n)
{
	struct shm_frame f = { 0 };
	void *map = NULL;
	const size_t size = control & 4 ? SHM_WINDOW_SMALL : SHM_SIZE;
	int fd = control & 2 ? weft_memfd_make("liar", size, &map) : -1;

	memcpy(&f, p, weft_min(n, sizeof(f)));
	if (control & 1) {
		f.magic = SHM_FRAME_MAGIC;
		f.type = f.type % (SHM_FRAME_TYPES - 1) + 1;
	}
	weft_frame_send(conn->fd, &f, sizeof(f), fd);
	if (fd < 0)
		return;
	munmap(map, size);
	close(fd);
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
			fuzz_counter(conn->tx.shared, sizeof(*conn->tx.shared),
				     data[1], data + 3, n);
			break;
		case 2:
			fuzz_counter(conn->rx.shared, sizeof(*conn->rx.shared),
				     data[1], data + 3, n);
			break;
		case 3:
			say_frame(conn, data[1], data + 3, n);
			break;
		case 4:
			victim_act(ep, data[1], data + 3, n);
			break;
		default:
			dev->progress(iface);
			/* it must not sleep over what it has not seen */
			if (!(data[1] & 1))
				dev->arm(iface);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct weft_ep *ep, *lies;
	struct shm_conn *conn;
	int i;

	if (!iface)
		start();
	victim_begin();
	liar_ended = 0;
	if (dev->ep_create(liar, &attr.addr, NULL, &lies) ||
	    dev->ep_create(iface, &liar_attr.addr, NULL, &ep))
		victim_broken("no endpoint is made");
	for (i = 0; i < 100000 && !(dev->ready(lies) && dev->ready(ep)); i++) {
		dev->progress(iface);
		dev->progress(liar);
	}
	if (!dev->ready(lies))
		victim_broken("they do not meet");
	conn = shm_conn(weft_ep_conn(lies));
	say(conn, ep, data, size);
	for (i = 0; i < 8; i++)
		dev->progress(iface);
	shutdown(conn->fd, SHUT_RDWR);
	/* within its own number of looks: nothing here takes time */
	for (i = 0; i < 1000 && !(victim_ended && liar_ended); i++) {
		dev->progress(iface);
		dev->progress(liar);
	}
	dev->ep_destroy(ep);
	dev->ep_destroy(lies);
	victim_check();
	for (i = 0; i < 4; i++)
		dev->progress(iface);
	return 0;
}
