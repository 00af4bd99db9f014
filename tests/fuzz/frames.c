/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer that has proven itself and then says anything at all, on the message
 * stream (first byte even) or on a bulk stream (odd).  Then records of
 * {control, length (2 bytes), bytes}; control mends the bytes so that more of
 * them get past the first checks:
 *   1  the key and the address of memory that is really registered
 *   2  lengths that fit the record
 *   4  it is a put
 *   8  it is a get, as its length says
 * Nothing may be written outside the registered memory, no message may be
 * longer than the interface says, and the interface must live on.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/fuzz/victim.h"
#include "tests/lib/quiet.h"
#include "tests/lib/tcp_peer.h"
#include "util/bytes.h"
#include "util/util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct weft_dev_ops *const dev = &weft_tcp_ops;
static struct weft_iface *iface;
static uint8_t rkey[WEFT_RKEY_MAX];
static struct tcp_peer peer;

static void start(void)
{
	const struct weft_iface_params params = {
		.netdev = "lo",
		.family = AF_INET,
		.cb = &victim_cb,
	};
	struct weft_iface_attr attr;

	/* all in this thread, so that an input always does the same */
	setenv("WEFT_TCP_THREADS", "0", 1);
	log_quiet();
	victim.name = "frames";
	victim.dev = dev;
	if (dev->iface_open(&params, &iface) ||
	    dev->mem_register(victim_memory, VICTIM_MEMORY, WEFT_MEM_HOST,
			      &victim.mem))
		victim_broken("the interface does not open");
	dev->iface_query(iface, &attr);
	victim.max_message = attr.max_message;
	peer.iface = iface;
	peer.addr = attr.addr;
	dev->mem_pack(victim.mem, rkey);
}

static void mend(uint8_t *rec, size_t len, uint8_t control, bool bulk)
{
	size_t head = bulk ? 0 : TCP_FRAME_LEN;
	uint8_t *chunk = rec + head;

	if (!bulk && len >= TCP_FRAME_LEN && control & 4)
		rec[0] = TCP_FRAME_PUT;
	if (!bulk && len >= TCP_FRAME_LEN && control & 2)
		weft_put_le32(rec + 4, len - TCP_FRAME_LEN);
	if (!bulk && len >= TCP_FRAME_LEN + TCP_GET_SMALL_LEN && control & 8) {
		rec[0] = TCP_FRAME_GET;
		if (control & 1) {
			weft_put_le64(chunk, (uintptr_t)victim_memory);
			memcpy(chunk + 8, rkey, 16);
		}
		return;
	}
	if (len < head + TCP_CHUNK_LEN)
		return;
	if (control & 2)
		weft_put_le32(chunk + 56, len - head - TCP_CHUNK_LEN);
	if (control & 1) {
		weft_put_le64(chunk + 24, (uintptr_t)victim_memory);
		memcpy(chunk + 32, rkey, 16);
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
		/* libFuzzer's own -timeout= ends what never comes */
		tcp_peer_wait(&peer, fd, POLLOUT);
		if (send(fd, rec, len, MSG_NOSIGNAL | MSG_DONTWAIT) !=
		    (ssize_t)len)
			return;
		dev->progress(iface);
	}
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
	uint64_t token;
	int fd, bulk_fd, i;

	if (!size)
		return 0;
	if (!iface)
		start();
	victim_begin();
	fd = tcp_peer_meet(&peer, &token);
	if (fd < 0)
		victim_broken("an honest beginning is refused");
	if (data[0] & 1) {
		bulk_fd = tcp_peer_join(&peer, TCP_PURPOSE_BULK_OUT, token, 0);
		if (bulk_fd < 0)
			victim_broken("an honest bulk stream is refused");
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
	victim_check_memory();
	return 0;
}
