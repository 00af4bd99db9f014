/* SPDX-License-Identifier: BSD-3-Clause */
/* What a core dump of a process must not have: keys, and bytes on their way. */
#include <sys/stat.h>

#include "devices/nvlink/nvl.h"
#include "devices/tcp/tcp.h"
#include "settings/settings.h"
#include "tests/lib/smaps.h"
#include "tests/unit/devices/nvl_pair.h"

static void begin(void)
{
	begin_folder();
	setenv(FAKE_NVML, "1", 1);
}

TestSuite(dump, .init = begin, .fini = end_folder, .timeout = 60);

Test(dump, nvlink_keys_and_tables_are_not_dumped)
{
	struct nvl_conn *conn;

	load_fake();
	open_both();
	meet(&a, &b);
	conn = nvl_conn(weft_ep_conn(a.ep));
	cr_expect(smaps_undumped(conn->iface->base.addr->key));
	cr_expect(smaps_undumped(conn->base.remote->key));
	cr_expect(smaps_undumped(conn->table));
	cr_expect(smaps_undumped(conn->marks));
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
