/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory through UCP, every byte checked by the GPU that received it.
 *   gpu wait|come SOCKET [OPTION...] [gpu=N] [max=MIB] [total=MIB]
 *       [memory=malloc|vmm|parts|pool] MODE
 *   gpu [gpu=N] driver|setup
 * Options as for `exchange`.  memory: how it is allocated (gpumem.h), for all
 * modes but `values`, which has every kind.  Modes:
 *   driver   the CUDA driver alone: no UCX call is made, and no peer met
 *   setup    a UCX context and worker over a CUDA context, without a peer
 *   values   tagged and active messages, puts and gets, of GPU memory of each
 *            allocator, and between GPU and host memory; every size
 *   large    tagged messages of 1 MiB to `max` only
 *   oneway   one tagged message of 1 MiB, of side 0; GPU memory has not moved
 *            before
 *   many     4,000 tagged messages of up to 1 MiB, some larger
 *   again    buffers that are freed and allocated again, and used eight times
 *            in between
 *   lanes    prints the lanes, after one message
 *   killed   one side is killed in mid-transfer; the other must learn of it
 *   speed    latency and bandwidth, as JSON
 * A crash prints where, with the process's map.
 */
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/host/programs/gpu.h"
#include "util/drivers/cuda.h"

#define POISON 0x77
#define EDGE   64 /* looked at before and behind */

static size_t largest = 16 * MIB, total;
enum gpumem_kind gpu_kind = GPUMEM_MALLOC;

static void on_crash(int sig)
{
	char text[4096];
	void *at[64];
	ssize_t n;
	int fd;

	dprintf(2, "gpu: signal %d, at:\n", sig);
	backtrace_symbols_fd(at, backtrace(at, 64), 2);
	fd = open("/proc/self/maps", O_RDONLY);
	while ((n = read(fd, text, sizeof(text))) > 0)
		if (write(2, text, (size_t)n) != n)
			break;
	signal(sig, SIG_DFL);
	raise(sig);
}

/* ---- buffers ------------------------------------------------------------- */

void buf_open(struct buf *b, enum gpumem_kind kind, size_t size)
{
	b->kind = kind;
	b->size = size;
	b->p = kind == GPU_HOST ? aligned_alloc(4096, (size + 4095) & ~4095ul)
				: gpumem_alloc(kind, size);
	if (!b->p)
		die("no memory for %zu bytes", size);
}

void buf_close(struct buf *b)
{
	if (b->kind == GPU_HOST)
		free(b->p);
	else
		gpumem_free(b->kind, b->p, b->size);
}

void buf_fill(struct buf *b, size_t off, size_t len, uint64_t seed)
{
	if (b->kind != GPU_HOST)
		gpumem_fill(b->p, off, len, seed);
	else
		gpumem_host_fill((uint8_t *)b->p, off, len, seed);
}

void buf_verify(struct buf *b, size_t off, size_t len, uint64_t seed,
		const char *what)
{
	uint64_t bad;

	if (b->kind != GPU_HOST)
		bad = gpumem_check(b->p, off, len, seed);
	else
		bad = gpumem_host_check((uint8_t *)b->p, off, len, seed);
	if (bad)
		die("%s: %zu bytes at %zu are wrong in %llu places", what, len,
		    off, (unsigned long long)bad);
}

static size_t before(size_t off)
{
	return off < EDGE ? off : EDGE;
}

static size_t behind(const struct buf *b, size_t end)
{
	return b->size - end < EDGE ? b->size - end : EDGE;
}

static void poison(struct buf *b, size_t off, size_t len)
{
	buf_fill(b, off - before(off), before(off) + len + behind(b, off + len),
		 POISON);
}

static void verify_in(struct host *h, struct buf *in, size_t off, size_t len,
		      unsigned int kind, uint64_t round, const char *what)
{
	buf_verify(in, off, len, seed_of(!h->side, kind, round), what);
	buf_verify(in, off - before(off), before(off), POISON,
		   "in front of it");
	buf_verify(in, off + len, behind(in, off + len), POISON, "behind it");
}

/* ---- transfers ----------------------------------------------------------- */

static void tag_round(struct host *h, struct buf *out, struct buf *in,
		      size_t off, size_t len, uint64_t round)
{
	buf_fill(out, off, len, seed_of(h->side, 1, round));
	poison(in, off, len);
	tag_both(h, h->eps[0], out->p + off, in->p + off, len, round);
	verify_in(h, in, off, len, 1, round, "tagged message");
}

static struct {
	size_t off;
	uint64_t seed;
} am; /* what is to come */

static void look_at_eager(const void *data, size_t len)
{
	if (gpumem_host_check((uint8_t *)data - am.off, am.off, len, am.seed))
		die("an active message of %zu bytes is wrong", len);
}

static void am_round(struct host *h, struct buf *out, struct buf *in,
		     size_t off, size_t len, uint64_t round)
{
	buf_fill(out, off, len, seed_of(h->side, 2, round));
	poison(in, off, len);
	am.off = off;
	am.seed = seed_of(!h->side, 2, round);
	if (am_both(h, h->eps[0], out->p + off, in->p + off, len))
		verify_in(h, in, off, len, 2, round, "active message");
}

static void rma_round(struct host *h, struct buf *out, struct buf *in,
		      size_t off, size_t len, uint64_t round, bool put)
{
	struct buf *shown = put ? in : out;
	const struct rma r = { .out = out->p + off,
			       .in = in->p + off,
			       .len = len,
			       .base = shown->p,
			       .size = shown->size,
			       .put = put };
	unsigned int kind = put ? 3 : 4;

	buf_fill(out, off, len, seed_of(h->side, kind, round));
	poison(in, off, len);
	rma_both(h, h->eps[0], &r);
	verify_in(h, in, off, len, kind, round, put ? "put" : "get");
	barrier(h); /* the other side has looked, too */
}

/* ---- modes --------------------------------------------------------------- */

static void values_of(struct host *h, enum gpumem_kind from,
		      enum gpumem_kind to, bool rma, uint64_t round)
{
	static const size_t sizes[] = {
		1,     8,      63,	1000,	 8191,	  8193,	    65536,
		65541, 300001, MIB - 1, MIB + 1, 4 * MIB, 16 * MIB, 256 * MIB,
	};
	struct buf out, in;
	size_t room = largest + 2 * EDGE;

	buf_open(&out, from, room);
	buf_open(&in, to, room);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		size_t len = sizes[i], off = i % 3 ? 8 * (i % 5) + i % 3 : 0;

		if (len > largest)
			break;
		tag_round(h, &out, &in, off, len, ++round);
		am_round(h, &out, &in, off, len, ++round);
		if (!rma)
			continue;
		rma_round(h, &out, &in, off, len, ++round, true);
		rma_round(h, &out, &in, off, len, ++round, false);
	}
	barrier(h);
	buf_close(&in);
	buf_close(&out);
}

static void values(struct host *h)
{
	am_setup(h, look_at_eager);
	values_of(h, GPUMEM_MALLOC, GPUMEM_MALLOC, true, 1000);
	values_of(h, GPUMEM_VMM, GPUMEM_VMM, true, 2000);
	values_of(h, GPUMEM_POOL, GPUMEM_POOL, false, 3000);
	values_of(h, GPUMEM_MALLOC, GPU_HOST, false, 4000);
	values_of(h, GPU_HOST, GPUMEM_MALLOC, false, 5000);
	values_of(h, GPU_HOST, GPU_HOST, true, 6000);
}

/* Does this side's engine copy in the scheme that the test has chosen? */
static bool is_copier(unsigned int side)
{
	const char *scheme = getenv("UCX_RNDV_SCHEME");

	return !scheme || side == !strcmp(scheme, "get_zcopy");
}

static void oneway(struct host *h)
{
	ucp_request_param_t param = { 0 };
	unsigned long copies;
	ucs_status_ptr_t r;
	struct buf b;

	buf_open(&b, gpu_kind, 2 * MIB);
	poison(&b, EDGE, MIB);
	if (!h->side)
		buf_fill(&b, EDGE, MIB, seed_of(0, 1, 1));
	copies = gpumem_is_fake() ? gpumem_copies() : 0;
	if (h->side)
		r = ucp_tag_recv_nbx(h->worker, b.p + EDGE, MIB, 1, UINT64_MAX,
				     &param);
	else
		r = ucp_tag_send_nbx(h->eps[0], b.p + EDGE, MIB, 1, &param);
	check(host_wait(h, r), "the first message");
	/* the fake's memory is the processor's as well, a GPU's is not */
	if (gpumem_is_fake() && gpumem_copies() == copies && is_copier(h->side))
		die("no engine has copied it");
	if (h->side)
		verify_in(h, &b, EDGE, MIB, 1, 1, "the first message");
	barrier(h);
	buf_close(&b);
}

/* Both ways, `times` messages of each size: so much each side receives. */
static void large(struct host *h)
{
	/* the last of 1 MiB lies in two allocations, where they have 2 MiB */
	const size_t step = MIB / 2 + 13;
	struct buf out, in;
	uint64_t round = 1, bytes = 0;

	buf_open(&out, gpu_kind, largest + 4 * step);
	buf_open(&in, gpu_kind, largest + 4 * step);
	for (size_t len = MIB; len <= largest; len *= 4)
		for (int k = 0; k < 4; k++, round++, bytes += len)
			tag_round(h, &out, &in, k * step, len, round);
	barrier(h);
	printf("gpu: %llu bytes each way\n", (unsigned long long)bytes);
	if (gpumem_is_fake())
		printf("gpu: %lu copies\n", gpumem_copies());
	buf_close(&in);
	buf_close(&out);
}

/* What is visible too early once in a thousand times shows here. */
static void many(struct host *h)
{
	const size_t most = largest < MIB ? largest : MIB;
	uint64_t round, mix = 1;
	struct buf out, in;
	size_t len, off;

	buf_open(&out, gpu_kind, largest + EDGE);
	buf_open(&in, gpu_kind, largest + EDGE);
	for (round = 1; round <= 4000; round++) {
		/* the same on both sides: Knuth's MMIX generator */
		mix = mix * 6364136223846793005u + 1442695040888963407u;
		len = 1 + (mix >> 33) % (round % 100 ? most >> (mix >> 20) % 20
						     : largest);
		off = (mix >> 40) % EDGE;
		tag_round(h, &out, &in, off, len, round);
	}
	barrier(h);
	printf("gpu: %u messages each way\n", 4000);
	buf_close(&in);
	buf_close(&out);
}

/* Beside them two small ones, which the driver has in one block. */
static void again(struct host *h)
{
	const size_t little = 64 * KIB;
	const char *was = NULL;
	struct buf out, in, small_out, small_in;
	uint64_t round = 0, bytes = 0, same = 0;

	for (int turn = 0; turn < 12; turn++) {
		buf_open(&out, gpu_kind, largest);
		buf_open(&in, gpu_kind, largest);
		buf_open(&small_out, gpu_kind, little);
		buf_open(&small_in, gpu_kind, little);
		same += in.p == was;
		was = in.p;
		for (int k = 0; k < 8; k++) {
			tag_round(h, &out, &in, 0, largest, ++round);
			tag_round(h, &small_out, &small_in, 0, little, ++round);
			bytes += largest + little;
		}
		barrier(h);
		buf_close(&small_in);
		buf_close(&small_out);
		buf_close(&in);
		buf_close(&out);
	}
	printf("gpu: %llu bytes each way, %llu times at the same address\n",
	       (unsigned long long)bytes, (unsigned long long)same);
}

/* With some of it under way. */
static void end_here(struct host *h)
{
	for (int i = 0; i < 20; i++)
		host_progress(h);
}

static void killed(struct host *h)
{
	struct buf out, in;

	buf_open(&out, gpu_kind, largest);
	buf_open(&in, gpu_kind, largest);
	transfer_until_killed(h, out.p, in.p, largest, end_here);
	buf_fill(&in, 0, largest, 99);
	host_rest(h, LINGER_MS);
	buf_verify(&in, 0, largest, 99, "after the error was reported");
	printf("gpu: told: %s\n", ucs_status_string(h->error));
}

static void lanes(struct host *h)
{
	struct buf out, in;

	buf_open(&out, gpu_kind, 4096);
	buf_open(&in, gpu_kind, 4096);
	tag_round(h, &out, &in, 0, 1, 1);
	ucp_ep_print_info(h->eps[0], stdout);
	barrier(h);
}

static int driver(void)
{
	struct buf b;
	char name[120];

	gpumem_name(name, sizeof(name));
	for (int kind = GPUMEM_MALLOC; kind <= GPUMEM_POOL; kind++) {
		buf_open(&b, (enum gpumem_kind)kind, MIB);
		buf_fill(&b, 0, MIB, 7);
		buf_verify(&b, 0, MIB, 7, "what was filled");
		buf_close(&b);
	}
	printf("gpu: %s\n", name);
	return 0;
}

static int setup(void)
{
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA,
	};
	ucp_worker_params_t worker_params = { 0 };
	ucp_context_h context;
	ucp_worker_h worker;
	struct buf b;

	check(ucp_init(&params, NULL, &context), "ucp_init");
	check(ucp_worker_create(context, &worker_params, &worker),
	      "ucp_worker_create");
	buf_open(&b, GPUMEM_MALLOC, MIB);
	for (int i = 0; i < 100; i++)
		ucp_worker_progress(worker);
	buf_close(&b);
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
	return 0;
}

static enum gpumem_kind kind_of(const char *name)
{
	static const char *const names[] = {
		[GPUMEM_MALLOC] = "malloc",
		[GPUMEM_VMM] = "vmm",
		[GPUMEM_PARTS] = "parts",
		[GPUMEM_POOL] = "pool",
	};
	unsigned int i;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(name, names[i]))
			return (enum gpumem_kind)i;
	die("there is no memory '%s'", name);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[argc - 1] : "";
	struct host h;
	int gpu = 0, n = 1;
	void *warm;

	backtrace(&warm, 1); /* loads what it needs while all is well */
	signal(SIGSEGV, on_crash);
	signal(SIGBUS, on_crash);
	signal(SIGABRT, on_crash);
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(getenv("EXCHANGE_ALARM") ? atoi(getenv("EXCHANGE_ALARM")) : 60);
	for (int i = 1; i < argc; i++) {
		if (!strncmp(argv[i], "gpu=", 4))
			gpu = atoi(argv[i] + 4);
		else if (!strncmp(argv[i], "max=", 4))
			largest = strtoul(argv[i] + 4, NULL, 0) * MIB;
		else if (!strncmp(argv[i], "total=", 6))
			total = strtoul(argv[i] + 6, NULL, 0) * MIB;
		else if (!strncmp(argv[i], "memory=", 7))
			gpu_kind = kind_of(argv[i] + 7);
	}
	if (weft_cuda_init() || weft_cuda()->device_count(&n) || n < 1)
		die("no CUDA driver or no GPU");
	gpumem_open(gpu % n);
	if (!strcmp(mode, "driver"))
		return driver();
	if (!strcmp(mode, "setup"))
		return setup();
	printf("gpu: pid %d\n", (int)getpid());
	host_open(&h, argc, argv);
	host_connect(&h);
	if (!strcmp(mode, "values"))
		values(&h);
	else if (!strcmp(mode, "large"))
		large(&h);
	else if (!strcmp(mode, "oneway"))
		oneway(&h);
	else if (!strcmp(mode, "many"))
		many(&h);
	else if (!strcmp(mode, "again"))
		again(&h);
	else if (!strcmp(mode, "lanes"))
		lanes(&h);
	else if (!strcmp(mode, "killed"))
		killed(&h);
	else if (!strcmp(mode, "speed"))
		gpu_speed(&h, largest, total);
	else
		die("there is no mode '%s'", mode);
	if (h.errors && strcmp(mode, "killed"))
		die("%u error callbacks: %s", h.errors,
		    ucs_status_string(h.error));
	if (strcmp(mode, "killed"))
		barrier(&h);
	host_close(&h);
	printf("gpu: done\n");
	return 0;
}
