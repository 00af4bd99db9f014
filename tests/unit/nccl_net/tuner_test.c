/* SPDX-License-Identifier: BSD-3-Clause */
/* The tuner through each version's table, and when channels are ours. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include "nccl_net/abi/tuner.h"
#include "nccl_net/common/channels.h"
#include "nccl_net/net/net.h"
#include "tests/unit/nccl_net/pair.h"
#include "util/util.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

extern struct nccl_net_v6 ncclNetPlugin_v6;
extern struct nccl_net_v7 ncclNetPlugin_v7;
extern struct nccl_net_v8 ncclNetPlugin_v8;
extern struct nccl_net_v9 ncclNetPlugin_v9;
extern struct nccl_net_v10 ncclNetPlugin_v10;
extern struct nccl_net_v11 ncclNetPlugin_v11;
extern struct nccl_net_v12 ncclNetPlugin_v12;
extern struct nccl_tuner_v2 ncclTunerPlugin_v2;
extern struct nccl_tuner_v3 ncclTunerPlugin_v3;
extern struct nccl_tuner_v4 ncclTunerPlugin_v4;
extern struct nccl_tuner_v5 ncclTunerPlugin_v5;
extern struct nccl_tuner_v6 ncclTunerPlugin_v6;

static const char *const settings[] = {
	"NCCL_MIN_NCHANNELS",
	"NCCL_MAX_NCHANNELS",
	"NCCL_MIN_NRINGS",
	"NCCL_MAX_NRINGS",
	"NCCL_MIN_CTAS",
	"NCCL_MAX_CTAS",
	"NCCL_NET",
	"NCCL_NET_PLUGIN",
	"NCCL_TUNER_PLUGIN",
	"NCCL_P2P_NET_CHUNKSIZE",
	"NCCL_NET_GDR_LEVEL",
	"NCCL_BUFFSIZE",
	"NCCL_LL128_BUFFSIZE",
	"NCCL_NCHANNELS_PER_NET_PEER",
};

static void clean(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(settings); i++)
		unsetenv(settings[i]);
}

TestSuite(tuner, .init = clean);
TestSuite(channels, .init = clean);

/* What a communicator of @ranks over weft gets through version @v. */
static void *start(int v, size_t ranks, size_t nodes)
{
	void *ctx = &clean; /* init must say so when it is nothing */
	enum nccl_result rc;

	switch (v) {
	case 2:
		rc = ncclTunerPlugin_v2.init(ranks, nodes, NULL, &ctx);
		break;
	case 3:
		rc = ncclTunerPlugin_v3.init(ranks, nodes, NULL, &ctx);
		break;
	case 4:
		rc = ncclTunerPlugin_v4.init(ranks, nodes, NULL, &ctx);
		break;
	case 5:
		rc = ncclTunerPlugin_v5.init(&ctx, 7, ranks, nodes, NULL, NULL,
					     NULL);
		break;
	default:
		rc = ncclTunerPlugin_v6.init(&ctx, 7, ranks, nodes, NULL, NULL,
					     NULL);
	}
	cr_assert(eq(int, rc, NCCL_SUCCESS));
	return ctx;
}

#define PROTOS 3 /* NCCL_NUM_PROTOCOLS */
#define COSTS  (7 * PROTOS)

static int ask(int v, void *ctx, int func, size_t bytes)
{
	int algo = -1, proto = -1, n = 0;
	float costs[COSTS];
	enum nccl_result rc;
	size_t i;

	for (i = 0; i < COSTS; i++)
		costs[i] = (float)i;
	switch (v) {
	case 2:
		rc = ncclTunerPlugin_v2.get_coll(ctx, func, bytes, 0, 0, 1,
						 &algo, &proto, &n);
		break;
	case 3:
		rc = ncclTunerPlugin_v3.get_coll(ctx, func, bytes, 1,
						 (float **)costs,
						 COSTS / PROTOS, PROTOS, &n);
		break;
	case 4:
		rc = ncclTunerPlugin_v4.get_coll(ctx, func, bytes, 1,
						 (float **)costs,
						 COSTS / PROTOS, PROTOS, 0, &n);
		break;
	case 5:
		rc = ncclTunerPlugin_v5.get_coll(ctx, func, bytes, 1,
						 (float **)costs,
						 COSTS / PROTOS, PROTOS, 0, &n);
		break;
	default:
		rc = ncclTunerPlugin_v6.get_coll(ctx, func, bytes, 1,
						 (float **)costs,
						 COSTS / PROTOS, PROTOS, 0, &n);
	}
	cr_expect(eq(int, rc, NCCL_SUCCESS));
	cr_expect(algo == -1 && proto == -1, "v%d chose an algorithm", v);
	for (i = 0; i < COSTS; i++)
		cr_expect(costs[i] == (float)i, "v%d chose a protocol", v);
	return n;
}

static void end(int v, void *ctx)
{
	enum nccl_result (*const finish[])(void *) = {
		ncclTunerPlugin_v2.destroy,  ncclTunerPlugin_v3.destroy,
		ncclTunerPlugin_v4.destroy,  ncclTunerPlugin_v5.finalize,
		ncclTunerPlugin_v6.finalize,
	};

	cr_expect(eq(int, finish[v - 2](ctx), NCCL_SUCCESS));
}

static void over_weft(void)
{
	int n = 0;

	cr_assert(eq(int, ncclNetPlugin_v9.init(NULL), NCCL_SUCCESS));
	cr_assert(eq(int, ncclNetPlugin_v9.devices(&n), NCCL_SUCCESS));
	cr_assert(gt(int, n, 0));
}

Test(tuner, channels_per_size_in_every_version)
{
	int v;

	over_weft();
	for (v = 2; v <= 6; v++) {
		void *ctx = start(v, 2, 2);

		cr_expect(ctx != NULL);
		cr_expect(eq(int, ask(v, ctx, NCCL_ALL_REDUCE, 8), 1));
		cr_expect(eq(int, ask(v, ctx, NCCL_ALL_REDUCE, 512 * KIB), 1));
		cr_expect(eq(int, ask(v, ctx, NCCL_ALL_REDUCE, 1 * MIB), 2));
		cr_expect(eq(int, ask(v, ctx, NCCL_ALL_REDUCE, 2 * MIB), 2));
		cr_expect(eq(int, ask(v, ctx, NCCL_ALL_REDUCE, 4 * MIB), 0));
		cr_expect(eq(int, ask(v, ctx, NCCL_ALL_REDUCE, 256 * MIB), 0));
		cr_expect(eq(int, ask(v, ctx, NCCL_ALL_GATHER, 1 * MIB), 2));
		cr_expect(
			eq(int, ask(v, ctx, NCCL_REDUCE_SCATTER, 64 * MIB), 0));
		end(v, ctx);
	}
}

Test(tuner, rank_share_decides_channels)
{
	void *ctx;

	over_weft();
	ctx = start(6, 16, 2);
	cr_expect(eq(int, ask(6, ctx, NCCL_ALL_REDUCE, 4 * MIB), 1));
	cr_expect(eq(int, ask(6, ctx, NCCL_ALL_REDUCE, 16 * MIB), 2));
	cr_expect(eq(int, ask(6, ctx, NCCL_ALL_REDUCE, 64 * MIB), 0));
	end(6, ctx);
}

Test(tuner, unknown_collectives_are_not_tuned)
{
	int v, func;

	over_weft();
	for (v = 2; v <= 6; v++) {
		void *ctx = start(v, 2, 2);

		/* broadcast and reduce want all channels */
		for (func = 0; func < NCCL_ALL_GATHER; func++)
			cr_expect(eq(int, ask(v, ctx, func, 1 * MIB), 0));
		for (func = NCCL_ALL_REDUCE + 1; func < 20; func++)
			cr_expect(eq(int, ask(v, ctx, func, 1 * MIB), 0));
		cr_expect(eq(int, ask(v, ctx, -1, 1 * MIB), 0));
		end(v, ctx);
	}
}

Test(tuner, nothing_is_tuned_without_context)
{
	int v;

	for (v = 2; v <= 6; v++) {
		cr_expect(eq(int, ask(v, NULL, NCCL_ALL_REDUCE, 1 * MIB), 0));
		end(v, NULL);
	}
}

/*
 * NCCL's own number in a ring or tree of four channels, from its thresholds:
 * bytes per thread, in LL rings times the ranks.
 */
static int own(size_t bytes, size_t per_channel)
{
	int n = 4;

	while (n > 1 && bytes < n * per_channel)
		n--;
	return n;
}

Test(tuner, channels_are_never_raised)
{
	const size_t all_ranks[] = { 2, 3, 8, 64, 1024 };
	const size_t threads[] = { 512 * 8, 640 * 8, 512 * 64, 0 };
	size_t r, p, bytes, per;
	int func, n;

	over_weft();
	for (r = 0; r < ARRAY_SIZE(all_ranks); r++)
		for (p = 0; p < ARRAY_SIZE(threads); p++)
			for (func = 0; func <= NCCL_ALL_REDUCE; func++)
				for (bytes = 1; bytes < 1ull << 32;
				     bytes += bytes / 7 + 1) {
					per = threads[p]
						      ? threads[p]
						      : 512 * 8 * all_ranks[r];
					n = ask(6, start(6, all_ranks[r], 2),
						func, bytes);
					cr_assert(n <= own(bytes, per),
						  "%d of %zu bytes, %zu ranks",
						  n, bytes, all_ranks[r]);
				}
}

Test(tuner, single_node_is_not_tuned)
{
	int v;

	over_weft();
	for (v = 2; v <= 6; v++)
		cr_expect(start(v, 2, 1) == NULL);
}

Test(tuner, other_network_is_not_tuned)
{
	int v;

	setenv("NCCL_MIN_NCHANNELS", WEFT_NCCL_CHANNELS, 1);
	for (v = 2; v <= 6; v++)
		cr_expect(start(v, 2, 2) == NULL);
	over_weft();
	setenv("NCCL_NET", "Socket", 1);
	for (v = 2; v <= 6; v++)
		cr_expect(start(v, 2, 2) == NULL);
	setenv("NCCL_NET", "WEFT", 1);
	for (v = 2; v <= 6; v++) {
		void *ctx = start(v, 2, 2);

		cr_expect(ctx != NULL);
		end(v, ctx);
	}
}

static const char *min_channels(void)
{
	const char *v = getenv("NCCL_MIN_NCHANNELS");

	return v ? v : "(none)";
}

#define DEVICES(v, ...)                                                 \
	do {                                                            \
		int n = 0;                                              \
                                                                        \
		cr_assert(eq(int, ncclNetPlugin_v##v.init(__VA_ARGS__), \
			     NCCL_SUCCESS));                            \
		cr_expect(eq(str, (char *)min_channels(), "(none)"));   \
		cr_assert(eq(int, ncclNetPlugin_v##v.devices(&n),       \
			     NCCL_SUCCESS));                            \
	} while (0)

Test(channels, nothing_is_raised_below_v9)
{
	DEVICES(6, NULL);
	cr_expect(eq(str, (char *)min_channels(), "(none)"));
	DEVICES(7, NULL);
	cr_expect(eq(str, (char *)min_channels(), "(none)"));
	/* v8: the release of the caller is unknown */
	DEVICES(8, NULL);
	cr_expect(eq(str, (char *)min_channels(), "(none)"));
	cr_expect(weft_nccl_channels_raised() == false);
}

Test(channels, raised_through_v9)
{
	DEVICES(9, NULL);
	cr_expect(eq(str, (char *)min_channels(), WEFT_NCCL_CHANNELS));
	cr_expect(weft_nccl_channels_raised());
}

Test(channels, raised_through_v10)
{
	DEVICES(10, NULL, NULL);
	cr_expect(eq(str, (char *)min_channels(), WEFT_NCCL_CHANNELS));
}

Test(channels, raised_through_v11)
{
	void *ctx = NULL;

	DEVICES(11, &ctx, 1, NULL, NULL, NULL);
	cr_expect(eq(str, (char *)min_channels(), WEFT_NCCL_CHANNELS));
	cr_expect(weft_net_active());
	ncclNetPlugin_v11.finalize(ctx);
	cr_expect(weft_net_active() == false);
}

Test(channels, raised_through_v12)
{
	void *ctx = NULL;

	DEVICES(12, &ctx, 1, NULL, NULL, NULL);
	cr_expect(eq(str, (char *)min_channels(), WEFT_NCCL_CHANNELS));
	ncclNetPlugin_v12.finalize(ctx);
}

static const char *chunk(void)
{
	const char *v = getenv("NCCL_P2P_NET_CHUNKSIZE");

	return v ? v : "(none)";
}

/* A tuner has no say in those. */
Test(channels, chunk_size_is_raised_for_weft_alone)
{
	weft_nccl_channels_raise(false);
	cr_expect(eq(str, (char *)chunk(), WEFT_NCCL_CHUNK));
	setenv("NCCL_P2P_NET_CHUNKSIZE", "65536", 1);
	weft_nccl_channels_raise(true);
	cr_expect(eq(str, (char *)chunk(), "65536"));
	clean();
	setenv("NCCL_NET", "Socket", 1);
	weft_nccl_channels_raise(true);
	cr_expect(eq(str, (char *)chunk(), "(none)"));
}

Test(channels, users_settings_are_never_overridden)
{
	const char *const set[][2] = {
		{ "NCCL_MIN_NCHANNELS", "2" }, { "NCCL_MAX_NCHANNELS", "1" },
		{ "NCCL_MIN_NRINGS", "8" },    { "NCCL_MAX_NRINGS", "2" },
		{ "NCCL_MIN_CTAS", "8" },      { "NCCL_MAX_CTAS", "2" },
		{ "NCCL_NET", "Socket" },      { "NCCL_TUNER_PLUGIN", "none" },
	};
	char want[16];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(set); i++) {
		clean();
		setenv(set[i][0], set[i][1], 1);
		strcpy(want, min_channels());
		weft_nccl_channels_raise(true);
		cr_expect(eq(str, (char *)min_channels(), want), "%s",
			  set[i][0]);
		cr_expect(weft_nccl_channels_raised() == false, "%s",
			  set[i][0]);
	}
}
