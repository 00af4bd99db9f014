/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What bench/page.sh counts: @TIMES puts or messages of 8 bytes, one after the
 * other, between two interfaces of this process, which poll or sleep.
 *
 *   page tcp|shm put|message poll|sleep TIMES [off]
 *
 * off: without the page that `weft status` reads.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "bench/alone.h"
#include "stats/page.h"
#include "util/parse.h"

static struct side a, b;
static char bytes[8], target[8];
static uint8_t rkey[WEFT_RKEY_MAX];

/* As a program that sleeps until its event descriptor is readable. */
static void sleep_both(void)
{
	struct pollfd p[] = { { a.ops->event_fd(a.iface), POLLIN, 0 },
			      { b.ops->event_fd(b.iface), POLLIN, 0 } };

	if (!a.ops->arm(a.iface) && !b.ops->arm(b.iface))
		check(poll(p, 2, WAIT_MS) > 0, "neither side wakes");
}

static int post(bool put, struct wait_op *w)
{
	const struct weft_iov from = { bytes, sizeof(bytes), NULL };
	const struct iovec iov = { bytes, sizeof(bytes) };

	if (!put)
		return a.ops->message(a.ep, 1, &iov, 1);
	wait_op_init(w);
	return a.ops->put(a.ep, &from, 1, (uintptr_t)target, rkey, NULL,
			  &w->op);
}

static void run(bool put, bool sleeps, uint64_t times)
{
	struct wait_op w;
	int err;

	while (times) {
		err = post(put, &w);
		check(!err || err == -EAGAIN || err == -EINPROGRESS,
		      "the device says %d", err);
		times -= err != -EAGAIN;
		while (put ? err == -EINPROGRESS && !w.done
			   : !err && !b.messages) {
			if (sleeps)
				sleep_both();
			both_progress(&a, &b);
		}
		both_progress(&a, &b);
		b.messages = 0;
	}
}

static void open_side(struct side *s, const struct weft_dev_ops *ops)
{
	check(!side_init(s, ops, ops == &weft_tcp_ops ? "lo" : NULL, AF_UNSPEC),
	      "no interface");
	s->hook = drop_message;
}

/* No page is made beyond this limit; other files and sockets are later. */
static void open_sides(const struct weft_dev_ops *ops, bool with_page)
{
	struct rlimit was, low;

	getrlimit(RLIMIT_FSIZE, &was);
	low = was;
	low.rlim_cur = WEFT_PAGE_SIZE - 1;
	if (!with_page)
		setrlimit(RLIMIT_FSIZE, &low);
	open_side(&a, ops);
	open_side(&b, ops);
	setrlimit(RLIMIT_FSIZE, &was);
}

int main(int argc, char **argv)
{
	const struct weft_dev_ops *ops;
	struct weft_mem *mem;
	uint64_t times;

	check(argc >= 5 && !weft_parse_u64(argv[4], 1, UINT32_MAX, &times),
	      "page tcp|shm put|message poll|sleep TIMES [off]");
	ops = strcmp(argv[1], "tcp") ? &weft_shm_ops : &weft_tcp_ops;
	open_sides(ops, argc == 5);
	check(!ops->mem_register(target, sizeof(target), WEFT_MEM_HOST, &mem),
	      "no registration");
	ops->mem_pack(mem, rkey);
	check(!side_dial(&a, &b), "no endpoint");
	run(!strcmp(argv[2], "put"), !strcmp(argv[3], "sleep"), times);
	ops->mem_release(mem);
	side_close(&a);
	side_close(&b);
	return 0;
}
