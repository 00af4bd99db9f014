/* SPDX-License-Identifier: BSD-3-Clause */
/* What a core dump of a process must not have: keys, and bytes on their way. */
#include <sys/stat.h>

#include "bootstrap/settings.h"
#include "devices/nvlink/nvl_ring.h"
#include "devices/tcp/tcp.h"
#include "tests/lib/smaps.h"
#include "tests/unit/devices/nvl_pair.h"

#define LEN 4096u

static void begin(void)
{
	begin_folder();
	setenv(FAKE_NVML, "1", 1);
}

static void finish(void)
{
	end_folder();
}

TestSuite(dump, .init = begin, .fini = finish, .timeout = 60);

static struct nvl_conn *conn_of(struct side *s)
{
	struct nvl_iface *iface = (struct nvl_iface *)s->iface;

	return weft_list_first(&iface->conns, struct nvl_conn, link);
}

/* What goes to host memory goes through a ring of it. */
Test(dump, nvlink_keys_inboxes_and_rings_are_not_dumped)
{
	static uint8_t src[LEN], dst[LEN];
	struct weft_mem *mem;
	uint8_t key[WEFT_RKEY_MAX];
	struct nvl_conn *conn;
	unsigned int i, rings = 0;

	load_fake();
	cr_assert(eq(int, open_side(&a), 0));
	cr_assert(eq(int, open_side(&b), 0));
	meet(&a, &b);
	cr_assert(eq(int, nvl->mem_register(dst, LEN, WEFT_MEM_HOST, &mem), 0));
	nvl->mem_pack(mem, &key);
	cr_assert(eq(int, put_checked(&a, src, dst, LEN, &key), 0));

	conn = conn_of(&a);
	cr_expect(smaps_undumped(conn->iface->base.addr->key));
	cr_expect(smaps_undumped(conn->base.remote->key));
	cr_expect(smaps_undumped(conn->rx.head));
	cr_expect(smaps_undumped(conn->rx.msgs));
	cr_expect(smaps_undumped(conn->tx.ops));
	for (i = 0; i < NVL_RINGS; i++) {
		if (!conn->txrings[i])
			continue;
		rings++;
		cr_expect(smaps_undumped(conn->txrings[i]->map.host));
		cr_expect(smaps_undumped(conn_of(&b)->rxrings[i]->map.host));
	}
	cr_expect(eq(uint, rings, 1));
	nvl->mem_release(mem);
	side_close(&a);
	side_close(&b);
}

/* What the device without GPUs has of them: its key opens the same memory. */
Test(dump, tcp_keys_are_not_dumped)
{
	const struct weft_dev_ops *tcp = &weft_tcp_ops;
	const struct tcp_conn *conn;

	load_fake();
	cr_assert(eq(int, side_init(&a, tcp, "lo", AF_INET), 0));
	cr_assert(eq(int, side_init(&b, tcp, "lo", AF_INET), 0));
	cr_assert(eq(int, side_dial(&a, &b), 0));
	conn = tcp_conn(weft_ep_conn(a.ep));
	cr_expect(
		smaps_undumped(((struct tcp_iface *)a.iface)->base.addr->key));
	cr_expect(smaps_undumped(conn->base.remote->key));
	cr_expect(eq(
		int,
		memcmp(conn->base.remote->key, b.attr.addr.key, WEFT_KEY_LEN),
		0));
	side_close(&a);
	side_close(&b);
}

Test(dump, job_secret_is_not_dumped)
{
	static const char text[] = "a secret of this job alone";
	const uint8_t *secret = NULL;
	char path[64];
	size_t len = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/secret", run_folder);
	f = fopen(path, "w");
	cr_assert(f != NULL);
	fputs(text, f);
	fclose(f);
	cr_assert(eq(int, chmod(path, 0600), 0));
	setenv("WEFT_SECRET_FILE", path, 1);
	cr_assert(eq(int, weft_settings_secret(&secret, &len), 0));
	cr_assert(eq(sz, len, strlen(text)));
	cr_expect(eq(int, memcmp(secret, text, len), 0));
	cr_expect(smaps_undumped(secret));
}
