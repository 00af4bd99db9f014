/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer that has proven itself and then says anything at all, on the message
 * stream (first byte even) or on a bulk stream (odd).  Then records of
 * {control, length (2 bytes), bytes}; control mends the bytes so that more of
 * them get past the first checks:
 *   1  the key and the address of memory that is really registered
 *   2  lengths that fit the record
 *   4  it is a put
 * Nothing may be written outside the registered memory, no message may be
 * longer than the interface says, and the interface must live on.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/hello.h"
#include "devices/device.h"
#include "devices/tcp/tcp_proto.h"
#include "util/bytes.h"
#include "util/log.h"
#include "util/util.h"

#define GUARD	4096
#define TARGET	8192
#define POISON	0xa5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct weft_dev_ops *const dev = &weft_tcp_ops;
static struct weft_iface *iface;
static struct weft_iface_attr attr;
static uint8_t memory[GUARD + TARGET + GUARD];
static struct weft_mem *mem;
static struct weft_rkey rkey;
static uint32_t sequence;

/* What ends a run without a finding of the sanitizers says why. */
static void __attribute__((noreturn)) broken(const char *what)
{
	fprintf(stderr, "frames: %s (%s)\n", what, strerror(errno));
	abort();
}

static void on_message(void *arg, uint8_t id, void *data, size_t len)
{
	volatile uint8_t *bytes = data;
	uint8_t all = 0;
	size_t i;

	if (len > attr.max_message || id >= WEFT_MSG_IDS)
		broken("a message is longer than the interface says");
	for (i = 0; i < len; i++)
		all |= bytes[i];
	(void)all;
}

static void on_notify(void *arg, uint64_t tag, uint64_t size)
{
}

static void quiet(void *arg, enum weft_level level, const char *file, int line,
		  const char *text)
{
}

static void start(void)
{
	struct weft_iface_cb cb = {
		.on_message = on_message, .on_notify = on_notify,
	};

	/* all in this thread, so that an input always does the same */
	setenv("WEFT_TCP_THREADS", "0", 1);
	weft_log_set_sink(quiet, NULL);
	if (dev->iface_open("lo", AF_INET, &cb, &iface) ||
	    dev->mem_register(memory + GUARD, TARGET, WEFT_MEM_HOST, &mem))
		broken("the interface does not open");
	dev->iface_query(iface, &attr);
	dev->mem_pack(mem, &rkey);
}

/* libFuzzer's own -timeout= ends what never comes. */
static void wait_socket(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };
	int i;

	for (i = 0; poll(&p, 1, i > 20) <= 0; i++)
		dev->progress(iface);
}

static int read_all(int fd, void *buf, size_t len)
{
	uint8_t *p = buf;
	ssize_t n;

	while (len) {
		wait_socket(fd, POLLIN);
		n = recv(fd, p, len, MSG_DONTWAIT);
		if (n <= 0)
			return -ECONNRESET;
		p += n;
		len -= n;
	}
	return 0;
}

/*
 * Every connection from an address of its own out of 127/8: closed ones wait a
 * minute for stray segments, and one address has but 28,000 ports.
 */
static int dial(void)
{
	static uint32_t count;
	struct sockaddr_in from = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(0x7f010000 + count++ % 0x00fe0000),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&from, sizeof(from)))
		broken("cannot bind");
	/* libFuzzer's timer may interrupt it; it then goes on by itself */
	if (connect(fd, &attr.addr.sa.sa, weft_sockaddr_len(&attr.addr.sa)) &&
	    errno != EINTR)
		broken("cannot connect");
	wait_socket(fd, POLLOUT);
	return fd;
}

/* As an honest peer would: the hello must succeed. */
static int join(enum tcp_purpose purpose, uint64_t token)
{
	static const uint8_t own[WEFT_KEY_LEN] = "a fuzzer's key";
	uint8_t bytes[WEFT_HELLO_PURPOSE] = { purpose };
	struct weft_hello h;
	int fd = dial();

	if (purpose == TCP_PURPOSE_MESSAGES)
		weft_put_le32(bytes + 4, ++sequence);
	else
		weft_put_le64(bytes + 8, token);
	weft_hello_dial(&h, attr.addr.key, own, bytes);
	while (h.state != WEFT_HELLO_DONE) {
		if (h.state == WEFT_HELLO_SENDING) {
			if (send(fd, h.out, h.out_len, MSG_NOSIGNAL) !=
			    (ssize_t)h.out_len)
				broken("cannot send the hello");
			h.out_done = h.out_len;
		} else if (h.state == WEFT_HELLO_READING) {
			if (read_all(fd, h.in + h.have, h.want - h.have))
				broken("the hello is not answered");
			h.have = h.want;
		} else {
			broken("the hello is in no known state");
		}
		weft_hello_step(&h);
	}
	if (h.verdict != WEFT_HELLO_ACCEPTED)
		broken("the hello is refused");
	return fd;
}

static void mend(uint8_t *rec, size_t len, uint8_t control, bool bulk)
{
	size_t head = bulk ? 0 : TCP_FRAME_LEN;
	uint8_t *chunk = rec + head;

	if (!bulk && len >= TCP_FRAME_LEN && control & 4)
		rec[0] = TCP_FRAME_PUT;
	if (!bulk && len >= TCP_FRAME_LEN && control & 2)
		weft_put_le32(rec + 4, len - TCP_FRAME_LEN);
	if (len < head + TCP_CHUNK_LEN)
		return;
	if (control & 2)
		weft_put_le32(chunk + 56, len - head - TCP_CHUNK_LEN);
	if (control & 1) {
		weft_put_le64(chunk + 24, (uintptr_t)memory + GUARD);
		weft_put_le32(chunk + 32, rkey.slot);
		weft_put_le32(chunk + 36, rkey.generation);
		weft_put_le64(chunk + 40, rkey.token);
	}
}

static void say(int fd, const uint8_t *data, size_t size, bool bulk)
{
	uint8_t rec[4096 + TCP_CHUNK_LEN + TCP_FRAME_LEN];
	size_t len;

	while (size > 3) {
		len = (data[1] | data[2] << 8) % sizeof(rec);
		len = weft_min(len, size - 3);
		memcpy(rec, data + 3, len);
		mend(rec, len, data[0], bulk);
		data += 3 + len;
		size -= 3 + len;
		wait_socket(fd, POLLOUT);
		if (send(fd, rec, len, MSG_NOSIGNAL | MSG_DONTWAIT) !=
		    (ssize_t)len)
			return;
		dev->progress(iface);
	}
}

static void check_guards(void)
{
	size_t i;

	for (i = 0; i < GUARD; i++)
		if (memory[i] != POISON ||
		    memory[GUARD + TARGET + i] != POISON)
			broken("memory that is not registered was written");
}

/* Reads until the other side has nothing more to say. */
static void drain(int fd)
{
	uint8_t buf[4096];
	int i;

	shutdown(fd, SHUT_WR);
	for (i = 0; i < 100; i++) {
		dev->progress(iface);
		if (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) == 0)
			break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t welcome[TCP_FRAME_LEN + 8];
	int fd, bulk_fd = -1, i;

	if (!size)
		return 0;
	if (!iface)
		start();
	memset(memory, POISON, sizeof(memory));
	fd = join(TCP_PURPOSE_MESSAGES, 0);
	if (data[0] & 1) {
		if (read_all(fd, welcome, sizeof(welcome)) ||
		    welcome[0] != TCP_FRAME_WELCOME)
			broken("no welcome comes");
		bulk_fd = join(TCP_PURPOSE_BULK_OUT,
			       weft_get_le64(welcome + TCP_FRAME_LEN));
		say(bulk_fd, data + 1, size - 1, true);
		drain(bulk_fd);
		close(bulk_fd);
	} else {
		say(fd, data + 1, size - 1, false);
	}
	drain(fd);
	close(fd);
	for (i = 0; i < 4; i++)
		dev->progress(iface);
	check_guards();
	return 0;
}
