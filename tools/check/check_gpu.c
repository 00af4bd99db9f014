/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft check between GPUs: put and get between their memory over the NVLink
 * device, as weft_nvl does for UCX; its messages go over the device that has
 * been checked before.  If it does not reach the other side, GPU memory goes
 * through host memory, and a line says so.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "host/gpu.h"
#include "host/host.h"
#include "tools/check/check.h"
#include "tools/tool.h"
#include "ucx_tl/ucxenv.h"
#include "util/bytes.h"
#include "util/drivers/cuda.h"
#include "util/util.h"

_Static_assert(sizeof(struct check_card) == 128, "a card is bytes");

enum check_gpu_state {
	GPU_HERE = 1,
	GPU_NONE,
	GPU_FAILED, /* that side has logged why */
};

struct check_gpu {
	int dev;
	void *ctx; /* its primary context, never left current; NULL: not open */
	void *stream;
	uint64_t at; /* memory as by cudaMalloc(); 0: none */
	uint8_t *bounce;
};

static int open_gpu(struct check_gpu *g, int ordinal)
{
	struct weft_cuda_scope s;
	int r = WEFT_CU_NOT_INITIALIZED;

	if (!weft_cuda_enter(&s, NULL)) {
		r = s.cu->device_get(&g->dev, ordinal);
		if (!r)
			r = s.cu->primary_retain(&g->ctx, g->dev);
		weft_cuda_leave(&s);
	}
	if (!r)
		return 0;
	g->ctx = NULL;
	tool_error("check", "cannot use GPU %d (%s)", ordinal,
		   weft_cuda_error_name(r));
	return -EIO;
}

uint8_t *check_gpu_buffers(struct check_gpu *g, size_t len)
{
	struct weft_cuda_scope s;
	int r = WEFT_CU_INVALID_CONTEXT;

	g->bounce = malloc(len);
	if (!g->bounce) {
		tool_error("check", "no memory");
		return NULL;
	}
	if (!weft_cuda_enter(&s, g->ctx)) {
		r = s.cu->stream_create(&g->stream,
					WEFT_CU_STREAM_NON_BLOCKING);
		if (!r)
			r = s.cu->mem_alloc(&g->at, 2 * len);
		weft_cuda_leave(&s);
	}
	if (!r)
		return (uint8_t *)(uintptr_t)g->at;
	tool_error("check", "cannot allocate %zu MiB on GPU %d (%s)",
		   2 * len >> 20, g->dev, weft_cuda_error_name(r));
	return NULL;
}

int check_gpu_copy(struct check_gpu *g, void *dst, const void *src, size_t len)
{
	struct weft_cuda_scope s;
	int r = WEFT_CU_INVALID_CONTEXT;

	if (!len)
		return 0;
	if (!weft_cuda_enter(&s, g->ctx)) {
		r = s.cu->memcpy_async((uintptr_t)dst, (uintptr_t)src, len,
				       g->stream);
		while (!r && (r = s.cu->stream_query(g->stream)) ==
				     WEFT_CU_NOT_READY) {
			sched_yield();
			r = 0;
		}
		weft_cuda_leave(&s);
	}
	if (r)
		tool_error("check",
			   "cannot copy between GPU %d and the host: %s",
			   g->dev, weft_cuda_error_name(r));
	return r ? -EIO : 0;
}

uint8_t *check_gpu_bounce(struct check_gpu *g)
{
	return g->bounce;
}

static void close_gpu(struct check_gpu *g)
{
	struct weft_cuda_scope s;

	free(g->bounce);
	if (!g->ctx)
		return;
	if (!weft_cuda_enter(&s, g->ctx)) {
		if (g->at)
			s.cu->mem_free(g->at);
		if (g->stream)
			s.cu->stream_destroy(g->stream);
		weft_cuda_leave(&s);
	}
	weft_cuda()->primary_release(g->dev);
}

static void get_uuid(int ordinal, uint8_t uuid[16])
{
	struct weft_cu_uuid id;
	int dev;

	memset(&id, 0, sizeof(id));
	if (!weft_cuda()->device_get(&dev, ordinal))
		weft_cuda()->device_uuid(&id, dev);
	memcpy(uuid, id.bytes, sizeof(id.bytes));
}

/* Fill in the host ids; if NCCL is not introduced, @host->reason says why. */
static void fill_host(struct check_card *card, struct weft_samehost *host)
{
	weft_put_le64(card->host, weft_host_id());
	weft_samehost_find(0, host);
	if (host->introduced)
		memcpy(card->nccl, host->id, sizeof(card->nccl));
}

static void print_nccl(const struct check_card *own,
		       const struct check_card *other,
		       const struct weft_samehost *host)
{
	printf("  NCCL between the two ");
	if (!own->nccl[0])
		printf("is not introduced: %s\n", host->reason);
	else if (!other->nccl[0])
		puts("is not introduced: see 'weft info nccl' there");
	else if (memcmp(own->nccl, other->nccl, sizeof(own->nccl)))
		puts("is not introduced: they differ in folder, GPUs, user or "
		     "secret\n  ('weft info nccl' shows them)");
	else
		printf("uses its own %sshared memory: weft introduces it\n",
		       host->hidden ? "" : "NVLink and ");
}

/* The first GPU that is not the other side's; else the first. */
static int choose_gpu(const struct check_card *other)
{
	uint8_t uuid[16];
	int n = 0, i;

	if (!other || weft_cuda()->device_count(&n))
		return 0;
	for (i = 0; i < n; i++) {
		get_uuid(i, uuid);
		if (memcmp(uuid, other->uuid, sizeof(uuid)))
			return i;
	}
	return 0;
}

/* Open the GPU and the device, and fill in @card. */
static int open_side(struct check *n, struct check_gpu *g, struct check *over,
		     const struct check_card *other, struct check_card *card)
{
	const int ordinal = choose_gpu(other);
	struct weft_address own;
	int err = open_gpu(g, ordinal);

	if (err)
		return err;
	get_uuid(g->dev, card->uuid);
	weft_gpu_busid(weft_cuda(), g->dev, card->busid);
	err = check_open(n, &weft_nvlink_ops, "nvl", AF_UNSPEC, g, &own);
	if (err)
		return err;
	n->control = over->control;
	n->over = over;
	over->guest = n;
	weft_address_pack_iface(&own, card->iface);
	card->dev_len = (uint8_t)weft_address_pack_dev(&own, card->dev);
	card->state = GPU_HERE;
	return 0;
}

static int unpack_address(const struct check_card *card, struct weft_address *a)
{
	if (card->dev_len > sizeof(card->dev))
		return -EINVAL;
	return weft_address_unpack(card->iface, sizeof(card->iface), card->dev,
				   card->dev_len, a);
}

/* Print of a peer's text only what looks like a PCI address. */
static void strip_busid(char busid[16])
{
	busid[strspn(busid, "0123456789abcdef:.")] = '\0';
}

/* Both sides get the same answer; sets *@why if false. */
static bool is_reachable(struct check *n, const struct check_card *other,
			 const struct weft_address *peer, const char **why)
{
	if (n->ops->reaches(n->iface, peer, why))
		return true;
	if (weft_get_le64(other->host) != weft_host_id())
		*why = "it is on another host";
	return false;
}

static int measure_gpu(struct check *n, const struct check_card *own,
		       const struct check_card *other,
		       struct check_rates *rates)
{
	static const size_t blocks[] = { 64 << 10, 1 << 20, CHECK_BUFFER };
	int err;

	if (n->ops->mem_reaches(n->peer_rkey)) {
		printf("\n  GPU memory goes through host memory: the driver does not map that of %s here\n",
		       other->busid);
		return check_bye(n);
	}
	printf("\n  GPU memory over weft_nvl, %s here, %s there%s\n",
	       own->busid, other->busid,
	       memcmp(own->uuid, other->uuid, sizeof(own->uuid))
		       ? ""
		       : " (the same)");
	err = check_blocks(n, blocks, ARRAY_SIZE(blocks), rates);
	return err ? err : check_bye(n);
}

static int query_side(struct check *c, struct check *n, struct check_card *own,
		      struct check_rates *rates)
{
	struct weft_address peer;
	const char *why;
	int err;

	err = check_swap_cards(c, own);
	if (err)
		return err;
	c->card.busid[sizeof(c->card.busid) - 1] = '\0';
	strip_busid(c->card.busid);
	if (c->card.state == GPU_NONE) {
		puts("\n  GPU memory is not measured: the other side has no GPU");
		return 0;
	}
	if (c->card.state != GPU_HERE || unpack_address(&c->card, &peer)) {
		tool_error(
			"check",
			"the other side cannot use its GPU; its own message says why");
		return -EIO;
	}
	if (!is_reachable(n, &c->card, &peer, &why)) {
		printf("\n  GPU memory goes through host memory, as weft_nvl "
		       "does not reach the other side:\n  %s\n",
		       why);
		return 0;
	}
	err = check_connect(n, &peer);
	return err ? err : measure_gpu(n, own, &c->card, rates);
}

int check_gpus(struct check *c, struct check_rates *rates)
{
	struct check_card own = { .state = GPU_NONE };
	struct check_gpu g = { .ctx = NULL };
	struct check n = { .control = -1 };
	struct weft_samehost host;
	int err;

	if (!weft_gpu_here() || weft_cuda_init())
		return 0;
	fill_host(&own, &host);
	err = open_side(&n, &g, c, NULL, &own);
	if (!err)
		err = query_side(c, &n, &own, rates);
	if (!err && c->card.state == GPU_HERE &&
	    weft_get_le64(c->card.host) == weft_host_id())
		print_nccl(&own, &c->card, &host);
	c->guest = NULL;
	check_close(&n);
	close_gpu(&g);
	return err;
}

void check_serve_gpu(struct check *c)
{
	struct check_card own = { .state = GPU_NONE };
	struct check_gpu g = { .ctx = NULL };
	struct check n = { .control = -1 };
	struct weft_samehost host;
	struct weft_address peer;
	bool meet = false;
	const char *why;
	int err;

	fill_host(&own, &host);
	if (weft_gpu_here() && !weft_cuda_init()) {
		own.state = GPU_FAILED;
		err = open_side(&n, &g, c, &c->card, &own);
		meet = !err && !unpack_address(&c->card, &peer) &&
		       is_reachable(&n, &c->card, &peer, &why);
	}
	/*
	 * if that fails, the connection has ended and check_serve() reports it
	 */
	err = check_send_card(c, &own);
	if (!err && meet && !check_connect(&n, &peer)) {
		err = check_serve(&n);
		if (err)
			tool_error("check", "GPU memory: %s", strerror(-err));
	}
	c->guest = NULL;
	check_close(&n);
	close_gpu(&g);
}
