/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What UCP chooses lanes and protocols by.  A figure that changes unseen makes
 * it choose otherwise, so they stand here a second time.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include "tests/unit/ucx_tl/fake.h"
#include "ucx_tl/uct.h"

static struct weft_uct uct;
static struct weft_uct_iface iface;
static enum weft_ucs_status base_says;

#define BANDWIDTH 5e9  /* bytes/s, of the interface */
#define PRE	  1e-6 /* s, of it */

/* As UCX's own: it fills in what is asked for, all operations alike. */
static enum weft_ucs_status base_estimate(void *self,
					  struct weft_uct_perf_attr *attr)
{
	if (base_says)
		return base_says;
	if (attr->field_mask & WEFT_UCT_PERF_PRE)
		attr->send_pre_overhead = PRE;
	if (attr->field_mask & WEFT_UCT_PERF_BANDWIDTH)
		attr->bandwidth.shared = BANDWIDTH;
	return WEFT_UCS_OK;
}

static void setup(void)
{
	fake_reset();
	base_says = WEFT_UCS_OK;
	uct.sym.base_estimate_perf = base_estimate;
	uct.abi = weft_uct_abi_find(WEFT_UCX_MINOR_MAX);
	memset(&iface, 0, sizeof(iface));
	iface.uct = &uct;
	iface.tl = &weft_uct_tls[0];
	iface.attr.bandwidth = BANDWIDTH;
	iface.attr.latency = 5e-6;
	iface.attr.overhead = PRE;
}

TestSuite(perf, .init = setup, .timeout = 5);

static bool near(double a, double b)
{
	return fabs(a - b) <= 1e-9 * fabs(b);
}

/* room for what later minors put behind the part that weft knows */
static union {
	struct weft_uct_perf_attr attr;
	char room[256];
} asked;

static const struct weft_uct_perf_attr *estimate(enum weft_uct_ep_op operation)
{
	memset(&asked, 0, sizeof(asked));
	asked.attr.field_mask = WEFT_UCT_PERF_OPERATION | WEFT_UCT_PERF_PRE |
				WEFT_UCT_PERF_BANDWIDTH;
	asked.attr.operation = operation;
	cr_assert_eq(weft_uct_estimate_perf(&iface, &asked.attr), WEFT_UCS_OK);
	return &asked.attr;
}

/* bytes/s of the wire and a copy one after the other */
static double with_copy(double copy)
{
	return 1 / (1 / BANDWIDTH + 1 / copy);
}

static const struct weft_uct_tl *transport(const char *name)
{
	for (size_t i = 0; i < WEFT_UCT_TLS; i++)
		if (!strcmp(weft_uct_tls[i].name, name))
			return &weft_uct_tls[i];
	return NULL;
}

Test(perf, each_operation_has_its_cost)
{
	static const struct {
		const char *tl;
		double copy, bcopy, put_copy, put, get;
	} wanted[] = {
		{ "weft_tcp", 2.5e9, 80e-6, INFINITY, 0, 10e-6 },
		{ "weft_shm", 20e9, 0.2e-6, 4e9, 10e-6, 60e-6 },
		{ "weft_nvl", INFINITY, 0.2e-6, INFINITY, 0.5e-6, 0.5e-6 },
		{ "weft_ib", 10e9, 0.2e-6, INFINITY, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		const double copied = with_copy(wanted[i].copy);
		const double put = with_copy(wanted[i].put_copy);
		const struct {
			enum weft_uct_ep_op op;
			double pre, bandwidth;
		} ops[] = {
			{ WEFT_EP_OP_AM_SHORT, 0, copied },
			{ WEFT_EP_OP_AM_BCOPY, wanted[i].bcopy, copied },
			{ WEFT_EP_OP_AM_ZCOPY, 0.4e-6, copied },
			{ WEFT_EP_OP_PUT_ZCOPY, wanted[i].put, put },
			{ WEFT_EP_OP_GET_ZCOPY, wanted[i].get, put },
		};

		iface.tl = transport(wanted[i].tl);
		for (size_t k = 0; iface.tl && k < ARRAY_SIZE(ops); k++) {
			const struct weft_uct_perf_attr *got =
				estimate(ops[k].op);

			cr_expect(
				near(got->send_pre_overhead, PRE + ops[k].pre),
				"%s, operation %d: %g s", iface.tl->name,
				ops[k].op, got->send_pre_overhead);
			cr_expect(near(got->bandwidth.shared, ops[k].bandwidth),
				  "%s, operation %d: %g bytes/s",
				  iface.tl->name, ops[k].op,
				  got->bandwidth.shared);
		}
	}
}

static void check_gpu(uint64_t field, unsigned int at, double copy, double get)
{
	memset(&asked, 0, sizeof(asked));
	asked.attr.field_mask = WEFT_UCT_PERF_OPERATION | WEFT_UCT_PERF_PRE |
				WEFT_UCT_PERF_BANDWIDTH | field;
	asked.attr.operation = WEFT_EP_OP_GET_ZCOPY;
	asked.attr.memory[at] = WEFT_UCS_MEMORY_CUDA;
	cr_assert_eq(weft_uct_estimate_perf(&iface, &asked.attr), WEFT_UCS_OK);
	cr_expect(near(asked.attr.bandwidth.shared, with_copy(copy)), "%g",
		  asked.attr.bandwidth.shared);
	cr_expect(near(asked.attr.send_pre_overhead, PRE + get));
}

/* Engines copy faster than the kernel does; UCX names types that it knows. */
Test(perf, gpu_memory_over_shm_has_a_cost_of_its_own)
{
	iface.tl = transport("weft_shm");
	check_gpu(WEFT_UCT_PERF_LOCAL_MEMORY, 0, 40e9, 14e-6);
	check_gpu(WEFT_UCT_PERF_REMOTE_MEMORY, 1, 40e9, 14e-6);
	check_gpu(0, 0, 4e9, 60e-6);
	check_gpu(WEFT_UCT_PERF_REMOTE_MEMORY, 0, 4e9, 60e-6);
	/* no rail beside weft_nvl: UCX_MULTI_LANE_MAX_RATIO is 4 */
	cr_expect_lt(4 / (1 / iface.tl->lane_bandwidth + 1 / 40e9), 330e9);
}

Test(perf, fills_requested_fields_only)
{
	memset(&asked, 0xa5, sizeof(asked));
	asked.attr.field_mask = WEFT_UCT_PERF_OPERATION;
	asked.attr.operation = WEFT_EP_OP_AM_BCOPY;
	cr_expect_eq(weft_uct_estimate_perf(&iface, &asked.attr), WEFT_UCS_OK);
	for (size_t i = offsetof(struct weft_uct_perf_attr, memory);
	     i < sizeof(asked); i++)
		cr_assert_eq((unsigned char)asked.room[i], 0xa5, "byte %zu", i);

	/* no operation named: UCX's own figures stand */
	memset(&asked, 0, sizeof(asked));
	asked.attr.field_mask = WEFT_UCT_PERF_PRE | WEFT_UCT_PERF_BANDWIDTH;
	cr_expect_eq(weft_uct_estimate_perf(&iface, &asked.attr), WEFT_UCS_OK);
	cr_expect_eq(asked.attr.send_pre_overhead, PRE);
	cr_expect_eq(asked.attr.bandwidth.shared, BANDWIDTH);
}

/* From 1.19 on UCP reads the bandwidth of a path beside that of the device. */
Test(perf, path_bandwidth_includes_copies)
{
	struct weft_uct_bandwidth *path;
	char before[sizeof(asked)];

	for (unsigned int m = WEFT_UCX_MINOR_MIN; m <= WEFT_UCX_MINOR_MAX;
	     m++) {
		uct.abi = weft_uct_abi_find(m);
		memset(&asked, 0, sizeof(asked));
		asked.attr.field_mask =
			WEFT_UCT_PERF_OPERATION | WEFT_UCT_PERF_PATH_BANDWIDTH;
		asked.attr.operation = WEFT_EP_OP_AM_SHORT;
		path = (void *)(asked.room + 64); /* 1.19 to 1.22 */
		path->shared = BANDWIDTH;
		memcpy(before, &asked, sizeof(asked));
		cr_expect_eq(weft_uct_estimate_perf(&iface, &asked.attr),
			     WEFT_UCS_OK);
		if (m < 19)
			cr_expect(!memcmp(before, &asked, sizeof(asked)),
				  "1.%u has none", m);
		else
			cr_expect(near(path->shared, with_copy(2.5e9)),
				  "1.%u: %g", m, path->shared);
	}
}

Test(perf, error_of_ucx_is_passed_on)
{
	base_says = WEFT_UCS_UNSUPPORTED;
	memset(&asked, 0, sizeof(asked));
	asked.attr.field_mask = WEFT_UCT_PERF_OPERATION | WEFT_UCT_PERF_PRE;
	cr_expect_eq(weft_uct_estimate_perf(&iface, &asked.attr),
		     WEFT_UCS_UNSUPPORTED);
	cr_expect_eq(asked.attr.send_pre_overhead, 0);
}

Test(perf, loopback_beside_another_is_no_rail)
{
	struct weft_uct_iface_attr wide = { 0 }, narrow = { 0 };

	weft_uct_iface_scores(&iface, &wide);
	cr_expect_eq(wide.bandwidth.shared, BANDWIDTH);
	cr_expect_eq(wide.bandwidth.dedicated, 0);
	cr_expect_eq(wide.latency.c, 5e-6);
	cr_expect_eq(wide.latency.m, 0);
	cr_expect_eq(wide.overhead, PRE);
	cr_expect_eq(wide.dev_num_paths, 1);
	iface.deprioritized = true;
	weft_uct_iface_scores(&iface, &narrow);
	/* UCX_MULTI_LANE_MAX_RATIO is 4 by default */
	cr_expect_lt(narrow.bandwidth.shared * 4, wide.bandwidth.shared);
	cr_expect_gt(narrow.latency.c, 3 * wide.latency.c);
}

/* A rail of a netdev would be the last with its part. */
Test(perf, shared_memory_leaves_no_netdev_a_rail)
{
	struct weft_uct_iface_attr attr = { 0 };

	iface.tl = transport("weft_shm");
	weft_uct_iface_scores(&iface, &attr);
	/* 200 Gbit/s, and UCX_MULTI_LANE_MAX_RATIO */
	cr_expect_gt(attr.bandwidth.shared, 4 * 25e9);
}
