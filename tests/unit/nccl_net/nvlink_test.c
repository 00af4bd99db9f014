/* SPDX-License-Identifier: BSD-3-Clause */
/* The adaptor on the NVLink device, two contexts of one process. */
#include <unistd.h>
#include "nccl_net/abi/net.h"
#include "tests/unit/nccl_net/cuda.h"
#include "util/clock.h"

#define DEADLINE_MS 20000

static char folder[] = "/tmp/weft-nvlink-test-XXXXXX";
static unsigned int mine;

static void load(void)
{
	cr_assert(mkdtemp(folder) != NULL);
	setenv("WEFT_RUN_DIR", folder, 1);
	cuda_load();
	init();
}

/* The program's, on the GPU. */
static char *memory(void)
{
	mine++;
	return cuda.fake_cuda_vmm(0, BIG);
}

/* Nothing of weft's stays behind. */
static void done(void)
{
	struct fake_cuda_live live;
	char cmd[64];

	cuda.fake_cuda_live(&live);
	cr_expect(eq(uint, live.contexts, 0));
	cr_expect(eq(uint, live.maps, mine));
	cr_expect(eq(uint, live.pinned, 0));

	snprintf(cmd, sizeof(cmd), "rm -rf %s", folder);
	cr_expect(eq(int, system(cmd), 0));
}

/* Listeners stay open: both sides are used for more than this connection. */
static void meet(struct weft_net_comm **send, struct weft_net_comm **recv)
{
	const uint64_t end = weft_now_ms() + DEADLINE_MS;
	char handle[WEFT_NET_HANDLE];
	bool both;

	cr_assert(eq(int, weft_net_listen(b, 0, handle, &listener), 0));
	*send = *recv = NULL;
	while (!(*send && *recv) && weft_now_ms() < end) {
		if (!*send)
			cr_assert(eq(int, weft_net_connect(a, 0, handle, send),
				     0));
		if (!*recv)
			cr_assert(eq(int, weft_net_accept(listener, recv), 0));
	}
	both = *send && *recv;
	cr_assert(both, "not connected");
	both = (*send)->peer->port->wire == WEFT_WIRE_NVLINK &&
	       (*recv)->peer->port->wire == WEFT_WIRE_NVLINK;
	cr_assert(both, "not by NVLink");
}

static void wait_for(struct weft_net_request *req, size_t size)
{
	wait_within(DEADLINE_MS, req, size);
}

/* By engines on both sides; what is large ends in events. */
static void gpu_transfer(char *from, char *to, char fill)
{
	const unsigned int copies = cuda.fake_cuda_called("cuMemcpyAsync");
	const unsigned int events = cuda.fake_cuda_called("cuEventRecord");
	const unsigned int pieces = (BIG + (1u << 20) - 1) >> 20;
	const uint64_t end = weft_now_ms() + DEADLINE_MS;
	struct weft_net_request *s = NULL, *r = NULL;
	struct weft_net_mr *smr, *mr;

	memset(from, fill, BIG);
	memset(to, 0x5a, BIG);
	cr_assert(eq(int, weft_net_register(tx, from, BIG, NCCL_PTR_CUDA, &smr),
		     0));
	cr_assert(
		eq(int, weft_net_register(rx, to, BIG, NCCL_PTR_CUDA, &mr), 0));
	cr_assert(eq(int, weft_net_recv(rx, to, BIG, mr, &r), 0));
	while (!s && weft_now_ms() < end) {
		cr_assert(eq(int, weft_net_send(tx, from, BIG, smr, &s), 0));
		step();
	}
	cr_assert(s != NULL, "the send was never taken");
	wait_for(r, BIG);
	wait_for(s, BIG);
	cr_expect(memcmp(from, to, BIG) == 0, "the data differs");
	cr_expect(ge(uint, cuda.fake_cuda_called("cuMemcpyAsync") - copies,
		     2 * pieces));
	cr_expect(gt(uint, cuda.fake_cuda_called("cuEventRecord"), events));
	weft_net_deregister(smr);
	weft_net_deregister(mr);
}

TestSuite(nvlink, .init = load, .fini = done, .timeout = 120);

/* The other side still has a comm, and so its peer. */
Test(nvlink, closed_peer_can_be_connected_again)
{
	char *from = memory(), *to = memory();
	struct weft_net_listener *stay, *other;
	char handle[WEFT_NET_HANDLE];
	struct weft_net_comm *first;
	unsigned int i;

	cr_assert(from && to);
	cr_assert(eq(int, weft_net_listen(a, 0, handle, &stay), 0));
	meet(&tx, &rx);
	gpu_transfer(from, to, 0x11);
	weft_net_close_comm(tx);
	for (i = 0; i < 1000; i++)
		step();
	first = rx;
	other = listener;
	meet(&tx, &rx);
	gpu_transfer(from, to, 0x22);
	weft_net_close_comm(tx);
	weft_net_close_comm(rx);
	weft_net_close_comm(first);
	weft_net_close_listener(stay);
	weft_net_close_listener(other);
	weft_net_close_listener(listener);
	weft_net_close(a);
	weft_net_close(b);
	free(src);
	free(dst);
}

/* ---- what is made while kernels wait ------------------------------------ */

static const char *const makers[] = {
	"cuMemCreate",	       "cuMemImportFromShareableHandle",
	"cuMemAddressReserve", "cuMemMap",
	"cuMemSetAccess",      "cuMemHostRegister_v2",
	"cuStreamCreate",      "cuEventCreate",
	"cuCtxCreate_v2",
};

static void count(unsigned int n[ARRAY_SIZE(makers)])
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(makers); i++)
		n[i] = cuda.fake_cuda_called(makers[i]);
}

static struct weft_net_request *sent(char *from, struct weft_net_mr *smr)
{
	const uint64_t end = weft_now_ms() + DEADLINE_MS;
	struct weft_net_request *s = NULL;

	while (!s && weft_now_ms() < end) {
		cr_assert(eq(int, weft_net_send(tx, from, BIG, smr, &s), 0));
		step();
	}
	cr_assert(s != NULL, "the send was never taken");
	return s;
}

/* NCCL connects, registers, and then its kernels run: from then on nothing. */
static void nothing_is_made(void)
{
	unsigned int before[ARRAY_SIZE(makers)], after[ARRAY_SIZE(makers)];
	struct weft_net_request *s, *r;
	char *from = memory(), *to = memory();
	struct weft_net_mr *smr, *mr;
	unsigned int i;

	meet(&tx, &rx);
	cr_assert(eq(int, weft_net_register(tx, from, BIG, NCCL_PTR_CUDA, &smr),
		     0));
	cr_assert(
		eq(int, weft_net_register(rx, to, BIG, NCCL_PTR_CUDA, &mr), 0));
	count(before);
	for (i = 0; i < 100; i++) {
		memset(from, i, BIG);
		memset(to, ~i, BIG);
		cr_assert(eq(int, weft_net_recv(rx, to, BIG, mr, &r), 0));
		s = sent(from, smr);
		wait_for(r, BIG);
		wait_for(s, BIG);
		cr_assert(memcmp(from, to, BIG) == 0, "the data differs");
	}
	count(after);
	for (i = 0; i < ARRAY_SIZE(makers); i++)
		cr_expect(eq(uint, after[i], before[i]), "%s", makers[i]);
	weft_net_deregister(smr);
	weft_net_deregister(mr);
	weft_net_close_comm(tx);
	weft_net_close_comm(rx);
	weft_net_close_listener(listener);
	weft_net_close(a);
	weft_net_close(b);
	free(src);
	free(dst);
}

TestSuite(nvlink_made, .fini = done, .timeout = 120);

Test(nvlink_made, no_allocation_once_connected)
{
	load();
	nothing_is_made();
}

Test(nvlink_made, no_allocation_once_connected_without_stream_writes)
{
	setenv(FAKE_CUDA_NO_WRITE, "1", 1);
	load();
	nothing_is_made();
}
