/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/devices/ib/ib_pair.h"

const struct weft_dev_ops *const ib = &weft_ib_ops;

bool disorder;
uint8_t src[LEN], dst[LEN];

static void on_number(struct side *s, uint8_t id, void *data, size_t len)
{
	uint32_t n = UINT32_MAX;

	if (len == sizeof(n))
		memcpy(&n, data, sizeof(n));
	disorder |= n != s->messages - 1;
}

int open_side(struct side *s, const char *name)
{
	int ret = side_init(s, ib, name, AF_INET);

	s->hook = on_number;
	return ret;
}

void begin(void)
{
	clearenv();
	setenv("PATH", "/bin:/usr/bin", 1);
	weft_settings_reset();
	log_keep();
	fake_verbs_begin();
	memset(src, 7, LEN);
	memset(dst, 0, LEN);
}

void end(void)
{
	fake_verbs_end();
}

void nothing_lives(const char *when)
{
	struct fake_verbs_live l;

	fake_verbs_live(&l);
	cr_expect(
		l.contexts + l.pds + l.mrs + l.channels + l.cqs + l.qps == 0,
		"after %s: %u contexts, %u PDs, %u MRs, %u channels, %u CQs, %u QPs",
		when, l.contexts, l.pds, l.mrs, l.channels, l.cqs, l.qps);
}

void pair_up(void)
{
	cr_assert(zero(int, open_side(&a, "fake0:1")));
	cr_assert(zero(int, open_side(&b, "fake1:1")));
	dial_both();
	cr_assert(until(ib->ready(a.ep) && ib->ready(b.ep)));
}

void pair_down(void)
{
	side_close(&a);
	side_close(&b);
	nothing_lives("closing");
}

int send_number(struct side *s, uint32_t n)
{
	struct iovec iov = { &n, sizeof(n) };

	return ib->message(s->ep, 1, &iov, 1);
}

int put_all(struct weft_mem *mem)
{
	struct weft_iov iov = { src, LEN, NULL };
	struct wait_op w = WAIT_OP;
	uint8_t key[WEFT_RKEY_MAX];
	int ret;

	ib->mem_pack(mem, &key);
	if (!until(ib->ready(a.ep)))
		return -ETIME;
	ret = ib->put(a.ep, &iov, 1, (uintptr_t)dst, &key, NULL, &w.op);
	if (ret != -EINPROGRESS)
		return ret;
	return until(w.done) ? w.status : -ETIME;
}

bool unneeded(const char *call)
{
	return !strcmp(call, "create_qp");
}

bool survived(const char *call)
{
	static const char *const calls[] = {
		"close_device",		"dealloc_pd", "dereg_mr",
		"destroy_comp_channel", "destroy_cq", "destroy_qp",
		"modify_qp to ERR",
	};
	size_t i;

	for (i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		if (!strcmp(calls[i], call))
			return true;
	return unneeded(call);
}
