/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/netdevs.h"
#include "tests/unit/settings/with.h"
#include "util/util.h"

static struct weft_setting_info info_of(const char *name)
{
	struct weft_setting_info info;
	size_t i;

	for (i = 0; i < weft_settings_count(); i++) {
		weft_settings_info(i, &info);
		if (!strcmp(info.name, name))
			return info;
	}
	cr_assert(0, "%s is not in the table", name);
	return info;
}

Test(settings, defaults, .init = clean)
{
	const struct weft_settings *s = weft_settings();

	cr_expect(zero(int, caught.count), "%s", caught.text);
	cr_expect(eq(str, (char *)s->log, (char *)"warn"));
	cr_expect(eq(str, (char *)s->stats, (char *)"0"));
	cr_expect(eq(int, s->ucx, WEFT_AUTO));
	cr_expect(eq(uint, s->ucx_force, 0));
	cr_expect(eq(str, (char *)s->net_devices, (char *)"all"));
	cr_expect(eq(int, s->family, AF_UNSPEC));
	cr_expect(eq(uint, s->ports.first, 0));
	cr_expect(eq(uint, s->ports.last, 0));
	cr_expect(eq(str, (char *)s->secret_file, (char *)""));
	cr_expect(eq(str, (char *)s->run_dir, (char *)""));
	cr_expect(eq(u64, s->connect_timeout_ms, 30000));
	cr_expect(eq(u64, s->peer_timeout_ms, 5000));
	cr_expect(eq(uint, s->tcp_streams, 0));
	cr_expect(eq(uint, s->tcp_threads, UINT32_MAX));
	cr_expect(eq(sz, s->tcp_chunk, 512 << 10));
	cr_expect(eq(sz, s->tcp_bulk_min, 64 << 10));
	cr_expect(eq(sz, s->tcp_sndbuf, 0));
	cr_expect(eq(sz, s->tcp_rcvbuf, 0));
}

/* Every row: its default, written out by a user, is taken. */
Test(settings, every_default_parses, .init = clean)
{
	struct weft_setting_info info, again;
	size_t i;

	for (i = 0; i < weft_settings_count(); i++) {
		weft_settings_info(i, &info);
		cr_expect(eq(str, (char *)info.origin, (char *)"default"), "%s",
			  info.name);
		cr_expect(eq(str, (char *)info.value, (char *)info.def));
		cr_expect(gt(sz, strlen(info.help), 10), "%s", info.name);
		if (!*info.def)
			continue;
		with(info.name, info.def);
		cr_expect(zero(int, caught.count), "%s", caught.text);
		weft_settings_info(i, &again);
		cr_expect(eq(str, (char *)again.origin, (char *)"environment"));
	}
}

Test(settings, values, .init = clean)
{
	cr_expect(eq(str, (char *)with("WEFT_LOG", "DEBUG")->log,
		     (char *)"debug"));
	cr_expect(eq(int, weft_log_level, WEFT_LOG_DEBUG));
	cr_expect(eq(int, with("WEFT_UCX", "on")->ucx, WEFT_ON));
	cr_expect(eq(int, with("WEFT_UCX", "no")->ucx, WEFT_OFF));
	cr_expect(eq(uint, with("WEFT_UCX_FORCE", "22")->ucx_force, 22));
	cr_expect(eq(uint, with("WEFT_UCX_FORCE", "1.18")->ucx_force, 18));
	cr_expect(eq(int, with("WEFT_FAMILY", "ipv6")->family, AF_INET6));
	cr_expect(eq(int, with("WEFT_FAMILY", "IPv4")->family, AF_INET));
	cr_expect(eq(uint, with("WEFT_PORT_RANGE", "5000-5010")->ports.first,
		     5000));
	cr_expect(eq(uint, weft_settings()->ports.last, 5010));
	cr_expect(eq(uint, with("WEFT_PORT_RANGE", "5000")->ports.last, 5000));
	cr_expect(eq(u64, with("WEFT_PEER_TIMEOUT", "250ms")->peer_timeout_ms,
		     250));
	cr_expect(eq(u64, with("WEFT_CONNECT_TIMEOUT", "2")->connect_timeout_ms,
		     2000));
	cr_expect(eq(uint, with("WEFT_TCP_THREADS", "0")->tcp_threads, 0));
	cr_expect(eq(uint, with("WEFT_TCP_STREAMS", "4")->tcp_streams, 4));
	cr_expect(eq(sz, with("WEFT_TCP_CHUNK", "1m")->tcp_chunk, 1 << 20));
	cr_expect(
		eq(sz, with("WEFT_TCP_SNDBUF", "256K")->tcp_sndbuf, 256 << 10));
	cr_expect(eq(str, (char *)with("WEFT_STATS", "/tmp/x.%p")->stats,
		     (char *)"/tmp/x.%p"));
	cr_expect(zero(int, caught.count), "%s", caught.text);
}

static const struct {
	const char *name, *value, *bounds;
} bad[] = {
	{ "WEFT_LOG", "loud", "error, warn, info or debug" },
	{ "WEFT_UCX", "perhaps", "auto, on or off" },
	{ "WEFT_UCX_FORCE", "12", "from 1.13 to 1." },
	{ "WEFT_UCX_FORCE", "1.99", "from 1.13 to 1." },
	{ "WEFT_FAMILY", "ipx", "any, ipv4 or ipv6" },
	{ "WEFT_PORT_RANGE", "70000", "within 1-65535" },
	{ "WEFT_PORT_RANGE", "5010-5000", "within 1-65535" },
	{ "WEFT_PORT_RANGE", "a-b", "within 1-65535" },
	{ "WEFT_CONNECT_TIMEOUT", "2d", "from 1ms to 1h" },
	{ "WEFT_CONNECT_TIMEOUT", "0", "from 1ms to 1h" },
	{ "WEFT_CONNECT_TIMEOUT", "3601s", "from 1ms to 1h" },
	{ "WEFT_PEER_TIMEOUT", "-5s", "from 100ms to 1h" },
	{ "WEFT_PEER_TIMEOUT", "99ms", "from 100ms to 1h" },
	{ "WEFT_TCP_STREAMS", "65", "auto or from 0 to 64" },
	{ "WEFT_TCP_THREADS", "many", "auto or from 0 to 64" },
	{ "WEFT_TCP_CHUNK", "4095", "from 4k to 64m" },
	{ "WEFT_TCP_CHUNK", "65m", "from 4k to 64m" },
	{ "WEFT_TCP_CHUNK", "auto", "from 4k to 64m" },
	{ "WEFT_TCP_BULK_MIN", "2g", "from 0 to 1g" },
	{ "WEFT_TCP_RCVBUF", "18446744073709551616", "auto or from 0 to 1g" },
};

/*
 * One warning that names setting, value, bounds and origin; then the default.
 */
Test(settings, bad_value_warns_once_and_is_replaced, .init = clean)
{
	struct weft_setting_info info;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		with(bad[i].name, bad[i].value);
		weft_settings();
		cr_expect(eq(int, caught.count, 1), "%s=%s", bad[i].name,
			  bad[i].value);
		cr_expect(has(caught.text, bad[i].name), "%s", caught.text);
		cr_expect(has(caught.text, bad[i].value), "%s", caught.text);
		cr_expect(has(caught.text, bad[i].bounds), "%s", caught.text);
		cr_expect(has(caught.text, "from environment"), "%s",
			  caught.text);
		info = info_of(bad[i].name);
		cr_expect(eq(str, (char *)info.value, (char *)info.def));
		cr_expect(eq(str, (char *)info.origin, (char *)"default"));
	}
}

Test(settings, warning_names_the_alias, .init = clean)
{
	cr_expect(eq(uint, with("UCX_TCP_PORT_RANGE", "5010-50")->ports.first,
		     0));
	cr_expect(eq(int, caught.count, 1));
	cr_expect(has(caught.text, "from UCX_TCP_PORT_RANGE"), "%s",
		  caught.text);
}

/* Who did not choose weft hears nothing about other runtimes' variables. */
Test(settings, deferred_warnings_wait_for_flush, .init = clean)
{
	weft_settings_defer_warnings();
	setenv("UCX_TCP_PORT_RANGE", "5010-50", 1);
	setenv("NCCL_IB_TC", "none", 1);
	setenv("WEFT_IB_SL", "99", 1);
	weft_settings();
	cr_expect(eq(int, caught.count, 1),
		  "a setting of weft's is logged at once");
	cr_expect(has(caught.text, "WEFT_IB_SL='99'"), "%s", caught.text);
	weft_settings_defer_warnings(); /* too late to change anything */
	weft_settings_flush_warnings();
	cr_expect(eq(int, caught.count, 3), "the others once it is chosen");
	cr_expect(has(caught.text, "from NCCL_IB_TC"), "%s", caught.text);
	weft_settings_flush_warnings();
	cr_expect(eq(int, caught.count, 3), "each once");
}

/* Each foreign name is read, its origin told, and its place in the order. */
Test(settings, every_alias_works, .init = clean)
{
	struct weft_setting_info info, got;
	char names[512], *name, *save;
	const char *value;
	int before;
	size_t i;

	for (i = 0; i < weft_settings_count(); i++) {
		clearenv();
		weft_settings_reset();
		weft_settings_info(i, &info);
		if (!info.aliases)
			continue;
		value = strstr(info.name, "PORT")     ? "6000-6001"
			: strstr(info.name, "BUF")    ? "128k"
			: strstr(info.name, "FAMILY") ? "ipv6"
			: strstr(info.name, "DEVICE") ? "w0"
			: strstr(info.name, "TCP") || strstr(info.name, "_IB_")
				? "3"
				: "w0";
		/* Some count only in the world whose names they are. */
		weft_settings_set_runtime(*info.aliases == 'N' ? "NCCL_" : "");
		snprintf(names, sizeof(names), "%s", info.aliases);
		for (name = strtok_r(names, ",", &save); name;
		     name = strtok_r(NULL, ",", &save)) {
			with(name, value);
			weft_settings_info(i, &got);
			cr_expect(eq(str, (char *)got.value, (char *)value),
				  "%s", name);
			cr_expect(eq(str, (char *)got.origin, name));
			cr_expect(zero(int, caught.count), "%s", caught.text);
		}
		/* From the last to the first: each one overrules the rest. */
		clearenv();
		snprintf(names, sizeof(names), "%s,%s", info.name,
			 info.aliases);
		for (before = 0; (name = strrchr(names, ',')) || !before;) {
			name = name ? name + 1 : names;
			before = name == names;
			setenv(name, value, 1);
			weft_settings_reset();
			weft_settings_info(i, &got);
			cr_expect(eq(str, (char *)got.origin,
				     before ? (char *)"environment" : name));
			if (!before)
				name[-1] = '\0';
		}
	}
}

/* The same name of a unit, another form: UCX's is a time. */
Test(settings, ucx_timeout_becomes_nearest_exponent, .init = clean)
{
	static const struct {
		const char *name, *value;
		unsigned int exponent;
	} times[] = {
		{ "WEFT_IB_TIMEOUT", "18", 18 },
		{ "NCCL_IB_TIMEOUT", "20", 20 },
		{ "UCX_RC_TIMEOUT", "1.0s", 18 }, /* UCX's default */
		{ "UCX_RC_TIMEOUT", "1", 18 },
		{ "UCX_RC_TIMEOUT", "2s", 19 },
		{ "UCX_RC_TIMEOUT", "500ms", 17 },
		{ "UCX_RC_TIMEOUT", "0.2s", 16 },  /* 2^15.57 */
		{ "UCX_RC_TIMEOUT", "0.18s", 15 }, /* 2^15.42 */
		{ "UCX_RC_TIMEOUT", "67ms", 14 },
		{ "UCX_RC_TIMEOUT", "20us", 2 },
		{ "UCX_RC_TIMEOUT", "1ns", 1 },
		{ "UCX_RC_TIMEOUT", "90000m", 31 },
	};
	static const char *const not [] = {
		"", "s", ".", "1h", "-1s", "1.0 s"
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(times); i++) {
		cr_expect(eq(uint,
			     with(times[i].name, times[i].value)->ib_timeout,
			     times[i].exponent),
			  "%s", times[i].value);
		cr_expect(zero(int, caught.count), "%s", caught.text);
	}
	for (i = 1; i < ARRAY_SIZE(not ); i++) {
		cr_expect(eq(uint, with("UCX_RC_TIMEOUT", not [i])->ib_timeout,
			     16),
			  "%s", not [i]);
		cr_expect(eq(int, caught.count, 1), "%s", not [i]);
	}
}

/* A key of UCX's and an index of another's: whose word counts. */
Test(settings, partition_by_key_or_index, .init = clean)
{
	static const struct {
		const char *world, *index;
		bool key;
	} rows[] = {
		{ "", "NCCL_IB_PKEY", true },
		{ "UCX_", "NCCL_IB_PKEY", true },
		{ "NCCL_", "NCCL_IB_PKEY", false },
		{ "NCCL_", "PATH", true },
		{ "UCX_", "WEFT_IB_PKEY_INDEX", false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		weft_settings_set_runtime(rows[i].world);
		with("UCX_IB_PKEY", "0x1234");
		setenv(rows[i].index, "3", 1);
		weft_settings_reset();
		cr_expect(eq(uint, weft_settings()->ib_pkey,
			     rows[i].key ? 0x1234 : UINT32_MAX),
			  "%zu", i);
	}
}

/* NCCL's default is 0, UCX's a class of the device's. */
Test(settings, default_traffic_class_follows_runtime, .init = clean)
{
	static const struct {
		const char *world, *name, *value;
		unsigned int class;
	} rows[] = {
		{ "", "PATH", "/", UINT32_MAX },
		{ "", "UCX_IB_TRAFFIC_CLASS", "auto", UINT32_MAX },
		{ "", "NCCL_IB_TC", "-1", 0 },
		{ "", "UCX_IB_TRAFFIC_CLASS", "0", 0 },
		{ "NCCL_", "PATH", "/", 0 },
		{ "NCCL_", "WEFT_IB_TRAFFIC_CLASS", "auto", 0 },
		{ "NCCL_", "NCCL_IB_TC", "-1", 0 },
		{ "NCCL_", "NCCL_IB_TC", "41", 41 },
		{ "NCCL_", "UCX_IB_TRAFFIC_CLASS", "auto", UINT32_MAX },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		weft_settings_set_runtime(rows[i].world);
		cr_expect(
			eq(uint,
			   with(rows[i].name, rows[i].value)->ib_traffic_class,
			   rows[i].class),
			"'%s' %s=%s", rows[i].world, rows[i].name,
			rows[i].value);
	}
}

Test(settings, empty_variable_counts_as_unset, .init = clean)
{
	setenv("WEFT_NET_DEVICES", "", 1);
	setenv("UCX_NET_DEVICES", "", 1);
	setenv("DASK_UCX__NET_DEVICES", "None", 1);
	setenv("UCXPY_IFNAME", "eth7", 1);
	weft_settings_reset();
	cr_expect(
		eq(str, (char *)weft_settings()->net_devices, (char *)"eth7"));
	cr_expect(zero(int, caught.count), "%s", caught.text);
}

static const struct {
	const char *name, *near;
} misspelt[] = {
	{ "WEFT_NET_DEVICE", "WEFT_NET_DEVICES" },
	{ "WEFT_NETDEVICES", "WEFT_NET_DEVICES" },
	{ "WEFT_TCP_STREAM", "WEFT_TCP_STREAMS" },
	{ "WEFT_PORTRANGE", "WEFT_PORT_RANGE" },
	{ "WEFT_STAT", "WEFT_STATS" },
	{ "WEFT_FOO", NULL },
	{ "WEFT_SOMETHING_ELSE", NULL },
	{ "WEFT_AVERYLONGNAMETHATGOESONANDONANDONANDONANDONANDONANDONANDONANDON",
	  NULL },
};

Test(settings, misspelt_name_warns, .init = clean)
{
	char mean[64];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(misspelt); i++) {
		with(misspelt[i].name, "1");
		cr_expect(eq(int, caught.count, 1), "%s", misspelt[i].name);
		if (misspelt[i].near) {
			snprintf(mean, sizeof(mean), "did you mean %s?",
				 misspelt[i].near);
			cr_expect(has(caught.text, mean), "%s", caught.text);
		} else {
			cr_expect(has(caught.text, "weft info settings"), "%s",
				  caught.text);
		}
	}
	with("WEFT_CACHE", "/tmp");
	with("WEFT_TEST_ANYTHING", "1");
	with("WEFTY", "1");
	cr_expect(zero(int, caught.count), "%s", caught.text);
}

Test(settings, read_once, .init = clean)
{
	const struct weft_settings *s = with("WEFT_TCP_CHUNK", "8k");

	setenv("WEFT_TCP_CHUNK", "16k", 1);
	cr_expect(eq(sz, weft_settings()->tcp_chunk, 8 << 10));
	cr_expect(eq(ptr, (void *)weft_settings(), (void *)s));
}

Test(settings, interfaces, .init = clean)
{
	cr_expect(weft_netdevs_allowed("eth0"));
	cr_expect(not(weft_netdevs_named("eth0")));
	with("WEFT_NET_DEVICES", "eth0");
	cr_expect(weft_netdevs_allowed("eth0"));
	cr_expect(weft_netdevs_named("eth0"));
	cr_expect(not(weft_netdevs_allowed("eth1")));
	cr_expect(not(weft_netdevs_allowed("lo")));
	with("WEFT_NET_DEVICES", "^eth0");
	cr_expect(weft_netdevs_allowed("eth1"));
	cr_expect(not(weft_netdevs_named("eth1")));
	with("DASK_UCX__NET_DEVICES", "auto");
	cr_expect(weft_netdevs_auto());
	cr_expect(weft_netdevs_allowed("eth1"));
	cr_expect(not(weft_netdevs_named("eth1")));
	with("UCXPY_IFNAME", "auto");
	cr_expect(not(weft_netdevs_auto()));
	with("UCXPY_IFNAME", "eth0");
	cr_expect(weft_netdevs_allowed("lo"));
	cr_expect(not(weft_netdevs_allowed("eth1")));
	with("NCCL_SOCKET_IFNAME", "eth");
	cr_expect(weft_netdevs_allowed("eth1"));
	cr_expect(not(weft_netdevs_allowed("docker0")));
}

Test(settings, nccl_variables_win_under_nccl, .init = clean)
{
	with("NCCL_SOCKET_IFNAME", "eth1");
	setenv("UCX_NET_DEVICES", "eth0", 1);
	weft_settings_reset();
	cr_expect(weft_netdevs_named("eth0"));
	weft_settings_set_runtime("NCCL_");
	weft_settings_reset();
	cr_expect(weft_netdevs_named("eth1"));
	cr_expect(not(weft_netdevs_named("eth0")));
	setenv("WEFT_NET_DEVICES", "eth2", 1);
	weft_settings_reset();
	cr_expect(weft_netdevs_named("eth2"));
}

Test(settings, nccl_socket_variables_count_under_nccl_only, .init = clean)
{
	with("NCCL_NSOCKS_PERTHREAD", "3");
	setenv("NCCL_SOCKET_NTHREADS", "4", 1);
	setenv("NCCL_SOCKET_FAMILY", "AF_INET6", 1);
	weft_settings_reset();
	cr_expect(zero(uint, weft_settings()->tcp_streams));
	cr_expect(eq(uint, weft_settings()->tcp_threads, UINT32_MAX));
	cr_expect(eq(int, weft_settings()->family, AF_UNSPEC));
	weft_settings_set_runtime("NCCL_");
	weft_settings_reset();
	cr_expect(eq(uint, weft_settings()->tcp_streams, 12));
	cr_expect(eq(uint, weft_settings()->tcp_threads, 4));
	cr_expect(eq(int, weft_settings()->family, AF_INET6));
	unsetenv("NCCL_SOCKET_NTHREADS");
	weft_settings_reset();
	cr_expect(eq(uint, weft_settings()->tcp_streams, 3));
}

Test(settings, weft_streams_win_over_nccl_sockets, .init = clean)
{
	with("WEFT_TCP_STREAMS", "5");
	setenv("NCCL_SOCKET_NTHREADS", "4", 1);
	weft_settings_set_runtime("NCCL_");
	weft_settings_reset();
	cr_expect(eq(uint, weft_settings()->tcp_streams, 5));
	cr_expect(eq(uint, weft_settings()->tcp_threads, 4));
	unsetenv("WEFT_TCP_STREAMS");
	weft_settings_reset();
	cr_expect(eq(uint, weft_settings()->tcp_streams, 4));
}
