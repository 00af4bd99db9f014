/* SPDX-License-Identifier: BSD-3-Clause */
/* Interfaces as UCX opens and asks them, over a device without a wire. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "tests/lib/caught.h"
#include "tests/unit/ucx_tl/fake.h"
#include "ucx_tl/uct.h"

static struct weft_uct uct;
static struct weft_uct_memory_domain md;
static struct weft_uct_iface *iface;
static weft_uct_fn taken_ops[WEFT_OP_COUNT]; /* of the last one opened */

static enum weft_ucs_status base_init(void *self, void *cls, int *count,
				      weft_uct_fn *ops, weft_uct_fn *internal,
				      void *domain, void *worker,
				      const void *params, const void *config,
				      void *stats, const char *name)
{
	for (size_t i = 0; i < WEFT_OP_COUNT; i++)
		__atomic_store_n(&taken_ops[i], ops[i], __ATOMIC_RELAXED);
	return WEFT_UCS_OK;
}

static void base_query(void *self, struct weft_uct_iface_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
}

static void disable(void *base, unsigned int flags)
{
}

static void cleanup(void *cls, void *obj, int limit)
{
}

/* @worker tells one from the other; they share the memory domain. */
static struct weft_uct_iface *open_on(const char *netdev, const void *worker)
{
	struct weft_uct_iface_params params = {
		.open_mode = WEFT_UCT_OPEN_MODE_DEVICE,
		.mode.device.dev_name = netdev,
	};
	void *out = NULL;

	cr_assert_eq(
		weft_uct_iface_open(&md, (void *)worker, &params, NULL, &out),
		WEFT_UCS_OK);
	return out;
}

static void close_it(struct weft_uct_iface *one)
{
	weft_uct_fn close =
		__atomic_load_n(&taken_ops[WEFT_OP_CLOSE], __ATOMIC_RELAXED);

	((void (*)(struct weft_uct_iface *))close)(one);
}

static void setup(void)
{
	fake_reset();
	catch_log();
	uct.abi = weft_uct_abi_find(WEFT_UCX_MINOR_MAX);
	uct.sym.base_iface_init = base_init;
	uct.sym.base_iface_query = base_query;
	uct.sym.progress_disable = disable;
	uct.sym.class_cleanup = cleanup;
	weft_uct_internal_ops(&uct);
	md.uct = &uct;
	md.tl = &weft_uct_tls[0];
}

TestSuite(iface, .init = setup, .timeout = 30);

Test(iface, insane_alignment_is_refused)
{
	enum { NONE = 0, ALIGN = 1, OFFSET = 2 };
	static const struct {
		unsigned int given;
		size_t alignment, offset;
		enum weft_ucs_status status;
	} wishes[] = {
		{ NONE, 3, 9, WEFT_UCS_OK },
		{ ALIGN, 1, 9, WEFT_UCS_OK },
		{ ALIGN, 4096, 0, WEFT_UCS_OK },
		{ ALIGN | OFFSET, 8, 7, WEFT_UCS_OK },
		{ ALIGN, 0, 0, WEFT_UCS_INVALID_PARAM },
		{ ALIGN, 3, 0, WEFT_UCS_INVALID_PARAM },
		{ OFFSET, 8, 1, WEFT_UCS_INVALID_PARAM },
		{ ALIGN | OFFSET, 8, 8, WEFT_UCS_INVALID_PARAM },
	};

	for (size_t i = 0; i < ARRAY_SIZE(wishes); i++) {
		struct weft_uct_iface_params params = {
			.field_mask =
				wishes[i].given * WEFT_UCT_PARAM_AM_ALIGNMENT,
			.open_mode = WEFT_UCT_OPEN_MODE_DEVICE,
			.mode.device.dev_name = "lo",
			.am_alignment = wishes[i].alignment,
			.am_align_offset = wishes[i].offset,
		};
		void *one = NULL;

		cr_expect_eq(
			weft_uct_iface_open(&md, NULL, &params, NULL, &one),
			wishes[i].status, "wish %zu", i);
		if (one)
			close_it(one);
	}
}

/* uct_iface_internal_ops_t of 1.22, uct/base/uct_iface.h */
#define IS_REACHABLE_V2 6

/* With fewer pieces UCP has no short active messages. */
Test(iface, offers_short_messages_in_pieces)
{
	/* weft_ib's device is a real one here */
	for (size_t i = 0; i < 2; i++) {
		struct weft_uct_iface_attr attr;

		md.tl = &weft_uct_tls[i];
		iface = open_on("lo", "worker");
		cr_assert_eq(
			((enum weft_ucs_status(*)(struct weft_uct_iface *,
						  struct weft_uct_iface_attr *))
				 taken_ops[WEFT_OP_QUERY])(iface, &attr),
			WEFT_UCS_OK);
		cr_expect(attr.flags & WEFT_UCT_IFACE_AM_SHORT);
		/* the device's, but one for a header */
		cr_expect_eq(attr.am.max_iov, 7, "%s: %zu", md.tl->name,
			     attr.am.max_iov);
		close_it(iface);
	}
}

static int reachable(const struct weft_address *remote, char why[128])
{
	uint8_t dev[WEFT_DEV_ADDR_MAX], addr[WEFT_IFACE_ADDR_LEN];
	const struct weft_uct_peer_params params = {
		.field_mask = WEFT_UCT_PEER_HAS_DEV_ADDR |
			      WEFT_UCT_PEER_HAS_IFACE_ADDR |
			      WEFT_UCT_PEER_HAS_INFO |
			      WEFT_UCT_PEER_HAS_INFO_LEN,
		.device_addr = dev,
		.iface_addr = addr,
		.info_string = why,
		.info_string_length = 128,
	};

	strcpy(why, "untouched");
	weft_address_pack_iface(remote, addr);
	weft_address_pack_dev(remote, dev);
	return ((int (*)(struct weft_uct_iface *,
			 const struct weft_uct_peer_params *))
			uct.internal_ops[IS_REACHABLE_V2])(iface, &params);
}

Test(iface, unreachable_reason_is_reported)
{
	struct weft_address remote = { .wire_min = WEFT_WIRE_MIN,
				       .wire_max = WEFT_WIRE_MAX };
	char why[128], versions[64];

	remote.sa.in.sin_family = AF_INET;
	remote.sa.in.sin_addr.s_addr = htonl(0x0a060102);
	remote.sa.in.sin_port = htons(7);
	iface = open_on("lo", "worker");
	cr_expect(reachable(&remote, why));
	cr_expect_str_eq(why, "untouched");

	fake.unreached = "it is in the fake's words";
	cr_expect(!reachable(&remote, why));
	cr_expect_str_eq(why, fake.unreached);
	cr_expect_eq(caught.count, 0, "%s", caught.text);

	/* another release's: told to the user, once, with what to do */
	remote.wire_min = remote.wire_max = WEFT_WIRE_MAX + 1;
	cr_expect(!reachable(&remote, why));
	cr_expect(!reachable(&remote, why));
	cr_expect_eq(caught.count, 1);
	snprintf(versions, sizeof(versions),
		 "10.6.1.2:7 speaks wire versions %d to %d", WEFT_WIRE_MAX + 1,
		 WEFT_WIRE_MAX + 1);
	expect_caught(versions);
	expect_caught("install the same release");

	remote.wire_min = remote.wire_max = 0;
	cr_expect(!reachable(&remote, why));
	cr_expect_str_eq(why, "its address is not one of weft's");
	close_it(iface);
}

/* With -EINPROGRESS alone nothing else says which were asked. */
Test(iface, flush_asks_all_peers_at_once)
{
	uint8_t addr[WEFT_IFACE_ADDR_LEN];
	uint8_t dev[WEFT_DEV_ADDR_MAX] = { 0, AF_INET, 127, 0, 0, 1 };
	struct weft_address a = { .wire_min = WEFT_WIRE_MIN,
				  .wire_max = WEFT_WIRE_MAX };
	struct weft_uct_ep_params params = {
		.field_mask = 1 | WEFT_UCT_EP_HAS_DEV_ADDR |
			      WEFT_UCT_EP_HAS_IFACE_ADDR,
		.dev_addr = dev,
		.iface_addr = addr,
	};
	struct weft_uct_ep *eps[3];
	enum weft_ucs_status (*flush)(struct weft_uct_iface *, unsigned int,
				      struct weft_uct_completion *);

	weft_address_pack_iface(&a, addr);
	params.iface = iface = open_on("lo", "worker");
	flush = (void *)taken_ops[WEFT_OP_IFACE_FLUSH];
	for (size_t i = 0; i < ARRAY_SIZE(eps); i++)
		cr_assert_eq(((enum weft_ucs_status(*)(
				     const struct weft_uct_ep_params *,
				     struct weft_uct_ep **))
				      taken_ops[WEFT_OP_EP_CREATE])(&params,
								    &eps[i]),
			     WEFT_UCS_OK);
	fake.flush = -EINPROGRESS;
	cr_expect_eq(flush(iface, 0, NULL), WEFT_UCS_INPROGRESS);
	cr_expect_eq(fake.flushes, ARRAY_SIZE(eps));
	fake.flush = 0;
	cr_expect_eq(flush(iface, 0, NULL), WEFT_UCS_OK);
	cr_expect_eq(fake.flushes, 2 * ARRAY_SIZE(eps));
	for (size_t i = 0; i < ARRAY_SIZE(eps); i++)
		((void (*)(struct weft_uct_ep *))taken_ops[WEFT_OP_EP_DESTROY])(
			eps[i]);
	close_it(iface);
}

#define OPENERS 4
#define ROUNDS	2000

/* A worker of its own in each thread, all of them on one context. */
static void *open_and_close(void *worker)
{
	for (int i = 0; i < ROUNDS; i++)
		close_it(open_on("wide0", worker));
	return NULL;
}

Test(iface, loopback_is_slowed_only_beside_another)
{
	struct weft_uct_iface *lo, *wide, *late;
	pthread_t t[OPENERS];

	for (intptr_t i = 0; i < OPENERS; i++)
		cr_assert(!pthread_create(&t[i], NULL, open_and_close,
					  (void *)(i + 1)));
	for (int i = 0; i < OPENERS; i++)
		pthread_join(t[i], NULL);
	lo = open_on("lo", "worker");
	cr_expect(!lo->deprioritized, "all others are closed");
	wide = open_on("wide0", "worker");
	cr_expect(!wide->deprioritized);
	late = open_on("lo", "other worker");
	cr_expect(late->deprioritized, "one is open");
	close_it(late);
	close_it(wide);
	close_it(lo);
}
