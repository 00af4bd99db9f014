/* SPDX-License-Identifier: BSD-3-Clause */
/* Pending requests, completions and ends, over a device without a wire. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include "tests/unit/ucx_tl/fake.h"
#include "ucx_tl/uct.h"
#include "util/clock.h"

static struct weft_uct uct;
static struct weft_uct_iface iface;
static struct weft_uct_ep *ep;
static weft_uct_fn ops[WEFT_OP_COUNT];
static unsigned int told;
static enum weft_ucs_status told_status;

static enum weft_ucs_status handle_ep_err(void *i, void *e,
					  enum weft_ucs_status status)
{
	cr_assert_eq(i, &iface);
	cr_assert_eq(e, ep);
	told++;
	told_status = status;
	return WEFT_UCS_OK;
}

static enum weft_ucs_status create(void)
{
	uint8_t dev[WEFT_DEV_ADDR_MAX] = { 0, AF_INET, 127, 0, 0, 1 };
	uint8_t addr[WEFT_IFACE_ADDR_LEN];
	struct weft_address a = { .wire_min = WEFT_WIRE_MIN,
				  .wire_max = WEFT_WIRE_MAX };
	struct weft_uct_ep_params params = {
		.field_mask = 1 | WEFT_UCT_EP_HAS_DEV_ADDR |
			      WEFT_UCT_EP_HAS_IFACE_ADDR,
		.iface = &iface,
		.dev_addr = dev,
		.iface_addr = addr,
	};

	weft_address_pack_iface(&a, addr);
	return ((enum weft_ucs_status(*)(
		const struct weft_uct_ep_params *,
		struct weft_uct_ep **))ops[WEFT_OP_EP_CREATE])(&params, &ep);
}

static void setup(void)
{
	fake_reset();
	uct.sym.handle_ep_err = handle_ep_err;
	iface.uct = &uct;
	iface.iface = &fake.iface;
	weft_list_init(&iface.eps);
	weft_list_init(&iface.waiting);
	weft_list_init(&iface.ended);
	weft_uct_ep_ops(ops);
	cr_assert_eq(create(), WEFT_UCS_OK);
}

static void teardown(void)
{
	((void (*)(struct weft_uct_ep *))ops[WEFT_OP_EP_DESTROY])(ep);
	weft_uct_op_free_all(&iface);
}

TestSuite(ep, .init = setup, .fini = teardown, .timeout = 5);

static enum weft_ucs_status am_short(uint8_t id)
{
	return ((enum weft_ucs_status(*)(
		struct weft_uct_ep *, uint8_t, uint64_t, const void *,
		unsigned int))ops[WEFT_OP_AM_SHORT])(ep, id, 7, NULL, 0);
}

static enum weft_ucs_status flush(unsigned int flags,
				  struct weft_uct_completion *comp)
{
	return ((enum weft_ucs_status(*)(struct weft_uct_ep *, unsigned int,
					 struct weft_uct_completion *))
			ops[WEFT_OP_EP_FLUSH])(ep, flags, comp);
}

typedef enum weft_ucs_status (*access_fn)(struct weft_uct_ep *ep,
					  const struct weft_uct_iov *iov,
					  size_t n, uint64_t remote_addr,
					  uintptr_t rkey,
					  struct weft_uct_completion *comp);

static enum weft_ucs_status put(struct weft_uct_completion *comp)
{
	char byte = 1;
	struct weft_uct_iov iov = { &byte, 1, NULL, 0, 1 };
	char rkey[FAKE_RKEY_LEN] = "key";

	return ((access_fn)ops[WEFT_OP_PUT_ZCOPY])(ep, &iov, 1, 0x1000,
						   (uintptr_t)&rkey, comp);
}

/* A request of UCP: sends its id when it runs, in @left pieces. */
struct request {
	struct weft_uct_pending base;
	uint8_t id;
	unsigned int left;
	uint8_t then; /* what the user sends on its completion */
	enum weft_ucs_status then_status;
};

static enum weft_ucs_status request_run(struct weft_uct_pending *base)
{
	struct request *r = (struct request *)base;
	enum weft_ucs_status status = am_short(r->id);

	if (status != WEFT_UCS_OK)
		return status;
	if (--r->left)
		return WEFT_UCS_INPROGRESS;
	if (r->then)
		r->then_status = am_short(r->then);
	return WEFT_UCS_OK;
}

static struct request request(uint8_t id)
{
	return (struct request){ .base.func = request_run,
				 .id = id,
				 .left = 1 };
}

static enum weft_ucs_status add(struct request *r)
{
	return weft_uct_pending_add(ep, &r->base, 0);
}

Test(ep, busy_only_when_the_send_would_be_taken)
{
	static struct request r; /* still queued at the end */

	r = request(1);
	cr_expect_eq(add(&r), WEFT_UCS_BUSY);
	fake.ready = false;
	cr_expect_eq(am_short(1), WEFT_UCS_NO_RESOURCE);
	cr_expect_eq(add(&r), WEFT_UCS_OK);
}

Test(ep, requests_run_in_order_and_new_sends_wait)
{
	struct request r[3] = { request(1), request(2), request(3) };
	const uint8_t order[] = { 1, 1, 2, 3, 4 };

	r[0].left = 2;
	fake.ready = false;
	for (int i = 0; i < 3; i++)
		cr_expect_eq(add(&r[i]), WEFT_UCS_OK);
	fake.ready = true;
	cr_expect_eq(am_short(9), WEFT_UCS_NO_RESOURCE, "overtook the queue");
	cr_expect(weft_uct_pending_runnable(&iface));
	weft_uct_pending_ready(&iface, ep->ep, ep);
	cr_expect_eq(am_short(4), WEFT_UCS_OK);
	cr_expect_eq(fake.taken, 5);
	cr_expect_arr_eq(fake.ids, order, sizeof(order));
	cr_expect_not(weft_uct_pending_runnable(&iface));
}

Test(ep, a_send_from_a_completion_waits_behind_the_queue)
{
	struct request r[2] = { request(1), request(2) };

	r[0].then = 8;
	fake.ready = false;
	add(&r[0]);
	add(&r[1]);
	fake.ready = true;
	weft_uct_pending_run_all(&iface);
	cr_expect_eq(r[0].then_status, WEFT_UCS_NO_RESOURCE);
	cr_expect_eq(fake.taken, 2);
	cr_expect_eq(fake.ids[1], 2);
}

static enum weft_ucs_status block_again(struct weft_uct_pending *base)
{
	enum weft_ucs_status status = request_run(base);

	fake.ready = false;
	return status;
}

Test(ep, request_without_room_stays_first)
{
	struct request r[2] = { request(1), request(2) };
	const uint8_t order[] = { 1, 1, 2 };

	r[0].left = 2;
	r[0].base.func = block_again;
	fake.ready = false;
	add(&r[0]);
	add(&r[1]);
	fake.ready = true;
	weft_uct_pending_run_all(&iface);
	cr_expect_eq(fake.taken, 1);
	fake.ready = true;
	weft_uct_pending_run_all(&iface);
	fake.ready = true;
	weft_uct_pending_run_all(&iface);
	cr_expect_eq(fake.taken, 3);
	cr_expect_arr_eq(fake.ids, order, sizeof(order));
}

static void purged(struct weft_uct_pending *req, void *arg)
{
	uint8_t **next = arg;

	*(*next)++ = ((struct request *)req)->id;
}

Test(ep, purge_returns_all_in_order)
{
	struct request r[2] = { request(1), request(2) };
	uint8_t ids[2] = { 0 }, *next = ids;

	fake.ready = false;
	add(&r[0]);
	add(&r[1]);
	weft_uct_pending_purge(ep, purged, &next);
	cr_expect_eq(ids[0], 1);
	cr_expect_eq(ids[1], 2);
	cr_expect(weft_list_empty(&iface.waiting));
}

static void count_done(struct weft_uct_completion *comp)
{
	comp->count = -1;
}

Test(ep, a_put_completes_once_with_its_status)
{
	struct weft_uct_completion comp = { count_done, 2, WEFT_UCS_OK };
	struct weft_op *first;

	fake.put = -EINPROGRESS;
	cr_expect_eq(put(&comp), WEFT_UCS_INPROGRESS);
	first = fake.op;
	cr_expect_eq(put(&comp), WEFT_UCS_INPROGRESS);
	first->done(first, -EACCES);
	cr_expect_eq(comp.count, 1, "completed before its other half");
	cr_expect_eq(comp.status, WEFT_UCS_REJECTED);
	fake.op->done(fake.op, 0);
	cr_expect_eq(comp.count, -1);
	cr_expect_eq(comp.status, WEFT_UCS_REJECTED, "the error was lost");
}

/* UCT allows it without a key: there is nothing to read behind it. */
Test(ep, put_and_get_are_never_immediate)
{
	static const int slots[] = { WEFT_OP_PUT_ZCOPY, WEFT_OP_GET_ZCOPY };
	struct weft_uct_completion comp = { count_done, 1, WEFT_UCS_OK };
	struct weft_uct_iov iov = { NULL, 0, NULL, 0, 1 };

	for (size_t i = 0; i < ARRAY_SIZE(slots); i++)
		for (size_t n = 0; n < 2; n++)
			cr_expect_eq(((access_fn)ops[slots[i]])(ep, &iov, n, 0,
								UINTPTR_MAX,
								&comp),
				     WEFT_UCS_OK);
	cr_expect_null(fake.op, "the device was asked");
	cr_expect_eq(comp.count, 1, "completed, and said to be complete");
}

Test(ep, flush_waits_behind_the_queue)
{
	struct request r = request(1);

	fake.ready = false;
	add(&r);
	cr_expect_eq(flush(0, NULL), WEFT_UCS_NO_RESOURCE);
	fake.ready = true;
	weft_uct_pending_run_all(&iface);
	cr_expect_eq(flush(0, NULL), WEFT_UCS_OK);
}

static enum weft_ucs_status ep_fence(void)
{
	return ((enum weft_ucs_status(*)(struct weft_uct_ep *, unsigned int))
			ops[WEFT_OP_EP_FENCE])(ep, 0);
}

/* A rendezvous: put, fence, message; the next one must not wait for it. */
Test(ep, fence_before_message_delays_no_put)
{
	struct weft_uct_completion comp = { count_done, 2, WEFT_UCS_OK };
	struct weft_op *first;

	fake.put = -EINPROGRESS;
	put(&comp);
	first = fake.op;
	ep_fence();
	am_short(1);
	cr_expect_eq(fake.fences, 1);
	cr_expect_eq(put(&comp), WEFT_UCS_INPROGRESS);
	first->done(first, 0);
	fake.op->done(fake.op, 0);
}

Test(ep, put_after_fence_waits_for_earlier_puts)
{
	struct weft_uct_completion comp = { count_done, 2, WEFT_UCS_OK };
	struct request r = request(1);

	fake.put = -EINPROGRESS;
	put(&comp);
	ep_fence();
	cr_expect_eq(put(&comp), WEFT_UCS_NO_RESOURCE);
	cr_expect_eq(add(&r), WEFT_UCS_OK, "UCP would spin forever");
	cr_expect_not(weft_uct_pending_runnable(&iface), "so would arm");
	fake.op->done(fake.op, 0);
	cr_expect(weft_uct_pending_runnable(&iface));
	weft_uct_pending_run_all(&iface);
	cr_expect_eq(put(&comp), WEFT_UCS_INPROGRESS);
	fake.op->done(fake.op, 0);
}

Test(ep, worker_fence_covers_queued_requests)
{
	struct weft_uct_completion comp = { count_done, 2, WEFT_UCS_OK };
	struct request r[2] = { request(1), request(2) };
	struct weft_op *before;

	fake.ready = false;
	add(&r[0]);
	weft_uct_fence_all(ep);
	cr_expect_eq(fake.fences, 0);
	add(&r[1]);
	fake.ready = true;
	weft_uct_pending_run_all(&iface);
	cr_expect_eq(fake.fences, 1);
	fake.put = -EINPROGRESS;
	put(&comp);
	before = fake.op;
	weft_uct_fence_all(ep);
	cr_expect_eq(am_short(3), WEFT_UCS_OK, "messages are the device's");
	cr_expect_eq(put(&comp), WEFT_UCS_NO_RESOURCE);
	before->done(before, 0);
	cr_expect_eq(put(&comp), WEFT_UCS_INPROGRESS);
	fake.op->done(fake.op, 0);
}

/* UCT_FLUSH_FLAG_REMOTE, which a strong fence uses, cancels nothing. */
Test(ep, a_remote_flush_is_a_flush)
{
	cr_expect_eq(flush(2, NULL), WEFT_UCS_OK);
	cr_expect_not(fake.ep.cancelled);
	cr_expect_eq(am_short(1), WEFT_UCS_OK);
}

Test(ep, error_is_reported_once)
{
	weft_uct_ep_error(&iface, ep->ep, ep, -ECONNRESET);
	weft_uct_ep_error(&iface, ep->ep, ep, -ECONNRESET);
	cr_expect_eq(told, 1);
	cr_expect_eq(told_status, WEFT_UCS_CONNECTION_RESET);
	cr_expect_eq(am_short(1), WEFT_UCS_CONNECTION_RESET);
	cr_expect_eq(told, 1);
}

static uint64_t now_ns;

static uint64_t clock_now(void)
{
	return now_ns;
}

static void later(unsigned int ms)
{
	now_ns += ms * 1000000ull;
	weft_uct_ep_report(&iface);
}

/* What UCP waits for is not known here: a rendezvous may be under way. */
Test(ep, orderly_close_is_reported_soon)
{
	weft_clock_set(clock_now);
	weft_uct_ep_error(&iface, ep->ep, ep, -ESHUTDOWN);
	later(249);
	cr_expect_eq(told, 0);
	cr_expect_eq(flush(0, NULL), WEFT_UCS_OK, "a late flush failed");
	later(1);
	cr_expect_eq(told, 1);
	cr_expect_eq(told_status, WEFT_UCS_CONNECTION_RESET);
	cr_expect_eq(flush(0, NULL), WEFT_UCS_OK, "a late flush failed");
	later(1000);
	cr_expect_eq(told, 1);
}

Test(ep, send_after_orderly_close_fails_at_once)
{
	weft_clock_set(clock_now);
	weft_uct_ep_error(&iface, ep->ep, ep, -ESHUTDOWN);
	cr_expect_eq(am_short(1), WEFT_UCS_CONNECTION_RESET);
	later(0);
	cr_expect_eq(told, 1);
}

Test(ep, orderly_close_with_puts_is_reported_at_once)
{
	struct weft_uct_completion comp = { count_done, 1, WEFT_UCS_OK };

	fake.put = -EINPROGRESS;
	put(&comp);
	weft_uct_ep_error(&iface, ep->ep, ep, -ESHUTDOWN);
	cr_expect_eq(told, 1);
}

Test(ep, cancelled_endpoint_reports_nothing)
{
	weft_clock_set(clock_now);
	weft_uct_ep_error(&iface, ep->ep, ep, -ESHUTDOWN);
	cr_expect_eq(flush(WEFT_UCT_FLUSH_CANCEL, NULL), WEFT_UCS_OK);
	later(1000);
	cr_expect_eq(told, 0);
}

Test(ep, orderly_close_with_queued_requests_is_an_error)
{
	static struct request r; /* still queued at the end */

	r = request(1);
	fake.ready = false;
	add(&r);
	weft_uct_ep_error(&iface, ep->ep, ep, -ESHUTDOWN);
	cr_expect_eq(told, 1);
}

Test(ep, cancel_completes_operations_without_error)
{
	struct weft_uct_completion comp = { count_done, 1, WEFT_UCS_OK };

	fake.put = -EINPROGRESS;
	put(&comp);
	cr_expect_eq(flush(WEFT_UCT_FLUSH_CANCEL, NULL), WEFT_UCS_OK);
	cr_expect(fake.ep.cancelled);
	cr_expect_eq(comp.count, -1);
	cr_expect_eq(comp.status, WEFT_UCS_CANCELED);
	cr_expect_eq(told, 0);
	cr_expect_eq(am_short(1), WEFT_UCS_CANCELED);
}

/* UCX's keepalive asks so where it sends no message of its own. */
static enum weft_ucs_status ep_check(void)
{
	return ((enum weft_ucs_status(*)(struct weft_uct_ep *, unsigned int,
					 struct weft_uct_completion *))
			ops[WEFT_OP_EP_CHECK])(ep, 0, NULL);
}

Test(ep, check_fails_for_dead_peer_only)
{
	static struct request r;

	cr_expect_eq(ep_check(), WEFT_UCS_OK);
	r = request(1);
	fake.ready = false;
	add(&r);
	cr_expect_eq(ep_check(), WEFT_UCS_OK, "it does not read");
	weft_uct_ep_error(&iface, ep->ep, ep, -ETIMEDOUT);
	cr_expect_eq(ep_check(), WEFT_UCS_ENDPOINT_TIMEOUT);
}

Test(ep, check_reports_orderly_close)
{
	weft_uct_ep_error(&iface, ep->ep, ep, -ESHUTDOWN);
	cr_expect_eq(ep_check(), WEFT_UCS_CONNECTION_RESET);
}
