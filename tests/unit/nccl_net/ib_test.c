/* SPDX-License-Identifier: BSD-3-Clause */
/* The adaptor on the InfiniBand device, two contexts of one process. */
#include "tests/unit/nccl_net/pair.h"
#include "tests/unit/nccl_net/ib.h"
#include "util/drivers/verbs.h"

TestSuite(ib, .init = begin, .fini = done, .timeout = 120);

/* ---- properties reported to NCCL ---------------------------------------- */

Test(ib, properties_have_name_pci_path_guid_and_speed)
{
	struct weft_net_props p;
	char path[256];

	in_sysfs("mkdir -p devices/pci0000:16/0000:17:00.0 && "
		 "ln -s ../../../devices/pci0000:16/0000:17:00.0 "
		 "class/infiniband/fake1/device && "
		 "echo 0002:c903:00a1:b2c3 >class/infiniband/fake1/node_guid");
	snprintf(path, sizeof(path), "%s/devices/pci0000:16/0000:17:00.0",
		 weft_sysfs_root);
	cr_assert(eq(int, weft_net_devices(), 2));
	cr_assert(eq(int, weft_net_properties(0, &p), 0));
	cr_expect(eq(str, p.name, "fake0:1"));
	cr_expect(p.pci_path == NULL);
	cr_expect(p.guid != 0);
	cr_assert(eq(int, weft_net_properties(1, &p), 0));
	cr_expect(eq(str, p.name, "fake1:1"));
	cr_expect(eq(str, p.pci_path, path));
	cr_expect(eq(u64, p.guid, 0x0002c90300a1b2c3));
	cr_expect(eq(int, p.port, 1));
	cr_expect(eq(int, p.speed, 100000));
	cr_expect(eq(int, p.ptr_support, 1), "GPU memory is not the adapter's");
	cr_expect(eq(int, p.reg_is_global, 0),
		  "each comm has a wire of its own");
	cr_expect(eq(int, weft_net_properties(2, &p), -EINVAL));
	cr_expect(eq(int, weft_net_properties(-1, &p), -EINVAL));
}

static void lists(const char *name, const char *value, const char *want)
{
	struct weft_net_props p;
	char seen[128] = "";
	int i, n;

	setenv(name, value, 1);
	weft_settings_reset();
	weft_net_hcas_forget();
	n = weft_net_devices();
	for (i = 0; i < n; i++) {
		cr_assert(eq(int, weft_net_properties(i, &p), 0));
		snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen),
			 "%s%s", i ? " " : "", p.name);
	}
	cr_expect(eq(str, seen, (char *)want), "%s=%s", name, value);
	unsetenv(name);
}

Test(ib, nccl_and_weft_lists_select_ports)
{
	lists("NCCL_IB_HCA", "fake", "fake0:1 fake1:1");
	lists("NCCL_IB_HCA", "fake1", "fake1:1");
	lists("NCCL_IB_HCA", "fake1:1,fake0:2", "fake1:1");
	lists("NCCL_IB_HCA", "=fake0:1", "fake0:1");
	lists("NCCL_IB_HCA", "=fake", "weft");
	lists("NCCL_IB_HCA", "^fake0", "fake1:1");
	lists("NCCL_IB_HCA", "^=fake1:1", "fake0:1");
	lists("NCCL_IB_HCA", "^fake", "weft");
	lists("NCCL_IB_DISABLE", "1", "weft");
	lists("NCCL_IB_DISABLE", "0x1", "weft");
	lists("NCCL_IB_DISABLE", " -010", "weft");
	lists("NCCL_IB_DISABLE", "00", "fake0:1 fake1:1");
	lists("NCCL_IB_DISABLE", "0x", "fake0:1 fake1:1");
	lists("NCCL_IB_DISABLE", "0", "fake0:1 fake1:1");
	lists("NCCL_IB_DISABLE", "yes", "fake0:1 fake1:1");
	lists("WEFT_IB_DEVICES", "fake1:1", "fake1:1");
	/* an interface stands for its ports */
	lists("UCX_NET_DEVICES", "lo", "fake0:1 fake1:1");
	/* a container sees its host's, and has the nodes that it was given */
	in_sysfs("mkdir -p class/infiniband_verbs/uverbs9876 && "
		 "echo fake0 >class/infiniband_verbs/uverbs9876/ibdev");
	lists("NCCL_IB_HCA", "fake", "fake1:1");
}

/* ---- connections -------------------------------------------------------- */

static void move(size_t size, size_t room)
{
	const uint64_t end = weft_now_ms() + DEADLINE_MS;
	struct weft_net_request *s = NULL, *r = NULL;

	memset(dst, 0x5a, size + 2);
	cr_assert(eq(int, weft_net_recv(rx, dst + 1, room, rmr, &r), 0));
	while (!s && weft_now_ms() < end) {
		cr_assert(
			eq(int, weft_net_send(tx, src + 3, size, NULL, &s), 0));
		step();
	}
	cr_assert(s != NULL, "the send was never taken");
	wait_for(r, size);
	wait_for(s, size);
	cr_expect(memcmp(dst + 1, src + 3, size) == 0, "%zu bytes differ",
		  size);
	cr_expect(dst[0] == 0x5a && dst[1 + size] == 0x5a,
		  "bytes beside %zu were written", size);
}

static void moves_all(void)
{
	static const size_t sizes[] = {
		0, 1, 100, 8175, 8176, 8177, 65536, BIG - 16,
	};
	size_t i;

	cr_assert(eq(int, weft_net_register(rx, dst, BIG, 1, &rmr), 0));
	for (i = 0; i < ARRAY_SIZE(sizes); i++)
		move(sizes[i], BIG - 8);
}

Test(ib, any_device_connects_to_any_other)
{
	int from, to;

	for (from = 0; from < 2; from++) {
		for (to = 0; to < 2; to++) {
			meet(from, to);
			cr_assert(by_ib(), "%d to %d", from, to);
			cr_expect(
				eq(uint, tx->peer->port->hca, (unsigned)from));
			cr_expect(eq(uint, rx->peer->port->hca, (unsigned)to));
			moves_all();
			part();
		}
	}
	cr_expect(eq(uint, errors, 0), "%s", last_error);
}

Test(ib, device_is_opened_on_first_use)
{
	struct fake_verbs_live live;

	meet(1, 1);
	fake_verbs_live(&live);
	cr_expect(eq(uint, live.contexts, 1));
}

/* What b does not have, or cannot open, a does not miss. */
Test(ib, rank_without_its_adapter_falls_back_to_tcp)
{
	unsigned int said;

	fake_verbs_fail(1);
	meet(0, 1);
	cr_expect(by_tcp());
	cr_expect(eq(uint, errors, 1), "%s", last_error);
	cr_expect(strstr(last_error, "fake1") != NULL, "%s", last_error);
	moves_all();
	part();
	/* the same the other way, and nothing is logged again */
	said = errors;
	meet(1, 0);
	cr_expect(by_tcp());
	moves_all();
	part();
	meet(0, 0);
	cr_expect(by_ib());
	cr_expect(eq(uint, errors, said), "%s", last_error);
}

/* ---- an adapter that does not reach the other one ----------------------- */

Test(ib, silent_fabric_falls_back_to_tcp)
{
	char handle[WEFT_NET_HANDLE];

	/* or a's ports would close between its connections */
	cr_assert(eq(int, weft_net_listen(a, 0, handle, &listener), 0));
	listeners[nlisteners++] = listener;
	fake_verbs_cut(true);
	meet(0, 1);
	cr_expect(by_tcp());
	cr_expect(eq(uint, fallbacks, 1));
	moves_all();
	part();
	cr_expect(eq(uint, tried_by_ib, 1));
	/* an unreachable peer is not waited for again */
	meet(0, 1);
	cr_expect(by_tcp());
	cr_expect(eq(uint, tried_by_ib, 0));
	moves_all();
	part();
	fake_verbs_cut(false);
}

/* The address says so: no time-out is needed. */
Test(ib, other_fabric_falls_back_to_tcp_at_once)
{
	fake_verbs_gid(1, false, "fe80:0000:0000:0000:0002:c903:0000:0002");
	meet(0, 1);
	cr_expect(by_tcp());
	cr_expect(eq(uint, tried_by_ib, 0));
	cr_expect(eq(uint, fallbacks, 1));
	cr_expect(strstr(last_error, "the other RoCE") != NULL, "%s",
		  last_error);
	moves_all();
	part();
	meet(1, 1);
	cr_expect(by_ib());
	moves_all();
	part();
}

Test(ib, failing_fabric_falls_back_to_tcp)
{
	/* of one alone the other side may learn before it is connected */
	fake_verbs_all_status(IBV_WC_RETRY_EXC_ERR);
	meet(0, 1);
	cr_expect(by_tcp());
	cr_expect(eq(uint, fallbacks, 1));
	moves_all();
	part();
}

/* It worked once: the rank is gone, not the way to it. */
Test(ib, broken_connection_fails_requests)
{
	const uint64_t end = weft_now_ms() + DEADLINE_MS;
	struct weft_net_request *s = NULL, *r = NULL;
	bool is_done = false;
	size_t got;
	int ret = 0;

	meet(0, 1);
	cr_assert(by_ib());
	cr_assert(eq(int, weft_net_register(rx, dst, BIG, 1, &rmr), 0));
	move(1000, BIG - 8);
	fake_verbs_next_status(IBV_WC_RETRY_EXC_ERR);
	cr_assert(eq(int, weft_net_recv(rx, dst, BIG - 8, rmr, &r), 0));
	while (!s && !ret && weft_now_ms() < end) {
		ret = weft_net_send(tx, src, BIG - 8, NULL, &s);
		step();
	}
	while (s && !ret && !is_done && weft_now_ms() < end) {
		ret = weft_net_test(s, &is_done, &got);
		step();
	}
	cr_expect(lt(int, ret, 0), "the send succeeded");
	is_done = false;
	for (ret = 0; !ret && !is_done && weft_now_ms() < end; step())
		ret = weft_net_test(r, &is_done, &got);
	cr_expect(lt(int, ret, 0), "the receive succeeded");
	cr_expect(eq(uint, fallbacks, 0));
	weft_net_deregister(rmr);
}
