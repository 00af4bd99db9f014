/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rank receives: from NCCL's bootstrap (the handle; first byte even) or
 * by a proven peer over the device (odd).  Messages come as records of
 * {control, message id, length, bytes}; control mends the bytes so that more of
 * them get past the first checks: 1  the id of a comm that is there: the
 * receiver's, or (2) the sender's 4  a sequence number near the next one 8  it
 * is a put's notification, not a message 16  a send or a receive is posted
 * before it Nothing may be written beside the receives that are posted.
 */
#include <stdlib.h>
#include <string.h>

#include "nccl_net/net/comm.h"
#include "nccl_net/net/context.h"
#include "nccl_net/net/progress.h"
#include "tests/lib/quiet.h"
#include "tests/unit/nccl_net/fake.h"
#include "util/bytes.h"

#define GUARD  256
#define TARGET 4096
#define POISON 0xa5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t memory[GUARD + TARGET + GUARD];
static struct weft_net *a, *b;
static struct weft_net_listener *listener;
static struct weft_net_comm *tx, *rx;
static struct weft_net_mr *mr;

static void open_both(void)
{
	char handle[WEFT_NET_HANDLE];
	int i;

	log_quiet();
	if (weft_net_open(&a) || weft_net_open(&b) ||
	    weft_net_listen(b, 0, handle, &listener))
		abort();
	tx = rx = NULL;
	for (i = 0; i < 20; i++) {
		if (!tx && weft_net_connect(a, 0, handle, &tx))
			abort();
		if (!rx && weft_net_accept(listener, &rx))
			abort();
	}
	if (!tx || !rx || weft_net_register(rx, memory + GUARD, TARGET, 1, &mr))
		abort();
	memset(memory, POISON, sizeof(memory));
}

static void close_both(void)
{
	weft_net_deregister(mr);
	weft_net_close_comm(tx);
	weft_net_close_comm(rx);
	weft_net_close_listener(listener);
	weft_net_close(a);
	weft_net_close(b);
	if (fake.ifaces || fake.eps || fake.mems)
		abort();
}

static void try_handle(const uint8_t *data, size_t size)
{
	char handle[WEFT_NET_HANDLE] = { 0 };
	struct weft_net_comm *comm = NULL;
	struct weft_net *net;
	int i;

	memcpy(handle, data, weft_min(size, sizeof(handle)));
	if (weft_net_open(&net))
		abort();
	for (i = 0; i < 3 && !comm; i++)
		if (weft_net_connect(net, 0, handle, &comm))
			break;
	if (comm)
		abort(); /* no answer came */
	weft_net_close(net);
}

static void post_something(uint8_t control)
{
	struct weft_net_request *req = NULL;
	static const char bytes[TARGET];

	if (control & 2)
		weft_net_send(tx, bytes, control * 16u, NULL, &req);
	else
		weft_net_recv(rx, memory + GUARD, control * 16u, mr, &req);
}

static void record(uint8_t control, uint8_t id, uint8_t *bytes, size_t len)
{
	struct weft_net_comm *comm = control & 2 ? tx : rx;

	if (control & 16)
		post_something(control);
	if (control & 1 && len >= 8) {
		weft_put_le32(bytes, comm->id);
		if (control & 4)
			weft_put_le32(bytes + 4, comm->seq + bytes[4] % 4 - 2);
	}
	if (control & 8 && len >= 16)
		fake_inject_notify(weft_tag_pack(weft_get_le32(bytes),
						 weft_get_le32(bytes + 4)),
				   weft_get_le64(bytes + 8));
	else
		fake_inject(id % WEFT_MSG_IDS, bytes, len);
	weft_net_progress(a);
	weft_net_progress(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t bytes[512];
	size_t len;
	unsigned int i;

	if (size < 1)
		return 0;
	if (!(data[0] & 1)) {
		try_handle(data + 1, size - 1);
		return 0;
	}
	open_both();
	data++;
	size--;
	while (size >= 3) {
		len = weft_min(weft_min(data[2] * 2u, size - 3), sizeof(bytes));
		memcpy(bytes, data + 3, len);
		record(data[0], data[1], bytes, len);
		data += 3 + len;
		size -= 3 + len;
	}
	for (i = 0; i < GUARD; i++)
		if (memory[i] != POISON || memory[GUARD + TARGET + i] != POISON)
			abort();
	close_both();
	return 0;
}
