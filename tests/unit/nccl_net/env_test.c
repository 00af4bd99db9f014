/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "host/pci.h"
#include "nccl_net/abi/env.h"
#include "nccl_net/abi/net.h"
#include "nccl_net/api/env.h"
#include "settings/settings.h"
#include "tests/lib/folder.h"

static const char *ask(const char *name)
{
	const char *v = weft_nccl_env_get(name);

	return v ? v : "(none)";
}

static void clean(void)
{
	unsetenv("NCCL_SOCKET_IFNAME");
	unsetenv("NCCL_SOCKET_FAMILY");
	unsetenv("WEFT_NET_DEVICES");
	unsetenv("UCX_NET_DEVICES");
	unsetenv("WEFT_FAMILY");
	unsetenv("NCCL_MIN_NCHANNELS");
	unsetenv("NCCL_NET");
	unsetenv("NCCL_NET_PLUGIN");
	unsetenv("NCCL_TUNER_PLUGIN");
	unsetenv("NCCL_NET_PLUGIN_REF_COUNT");
	unsetenv("NCCL_IB_HCA");
	unsetenv("NCCL_IB_DISABLE");
	unsetenv("UCXPY_IFNAME");
	unsetenv("WEFT_IB_DEVICES");
	unsetenv("WEFT_SECRET_FILE");
	weft_settings_reset();
}

TestSuite(env, .init = clean);

Test(env, unset_variables_stay_unset)
{
	cr_expect(eq(str, (char *)ask("NCCL_SOCKET_IFNAME"), "(none)"));
	cr_expect(eq(str, (char *)ask("NCCL_SOCKET_FAMILY"), "(none)"));
	cr_expect(eq(str, (char *)ask("NCCL_ALGO"), "(none)"));
}

Test(env, users_variables_are_passed_through)
{
	setenv("NCCL_ALGO", "Ring", 1);
	setenv("NCCL_SOCKET_IFNAME", "eth", 1);
	setenv("WEFT_NET_DEVICES", "lo", 1);
	cr_expect(eq(str, (char *)ask("NCCL_ALGO"), "Ring"));
	cr_expect(eq(str, (char *)ask("NCCL_SOCKET_IFNAME"), "eth"));
}

Test(env, ucx_devices_become_nccl_interfaces)
{
	struct weft_nccl_setting s;

	setenv("UCX_NET_DEVICES", "lo", 1);
	setenv("WEFT_FAMILY", "ipv4", 1);
	cr_expect(eq(str, (char *)ask("NCCL_SOCKET_IFNAME"), "=lo"));
	cr_expect(eq(str, (char *)ask("NCCL_SOCKET_FAMILY"), "AF_INET"));
	weft_nccl_env(0, &s);
	cr_expect(eq(str, (char *)s.origin, "UCX_NET_DEVICES"));
}

/* A host with two adapters, and eth0 beside their ib0 and ib1. */
static void two_adapters(void)
{
	clean();
	folder_begin();
	shell("for i in 0 1; do "
	      "p=class/infiniband/mlx5_$i; "
	      "mkdir -p $p/ports/1/gid_attrs/ndevs $p/device/net/ib$i && "
	      "echo '4: ACTIVE' >$p/ports/1/state && "
	      "echo '100 Gb/sec (4X EDR)' >$p/ports/1/rate && "
	      "echo InfiniBand >$p/ports/1/link_layer && "
	      "echo ib$i >$p/ports/1/gid_attrs/ndevs/0; done");
	weft_sysfs_root = folder;
}

static struct hcas {
	char said[64], in[24], hca[24], disable[8];
} said_of_hcas[] = {
	{ "", "", "(none)", "(none)" },
	{ "all", "UCX_NET_DEVICES", "(none)", "(none)" },
	{ "auto", "UCX_NET_DEVICES", "(none)", "(none)" },
	{ "mlx5_1:1,ib1", "UCX_NET_DEVICES", "=mlx5_1:1", "(none)" },
	{ "^mlx5_1,ib1", "UCX_NET_DEVICES", "=mlx5_0:1", "(none)" },
	{ "ib0,ib1", "WEFT_NET_DEVICES", "=mlx5_0:1,mlx5_1:1", "(none)" },
	{ "eth0", "UCX_NET_DEVICES", "(none)", "1" },
	{ "ib0", "UCXPY_IFNAME", "(none)", "(none)" },
	{ "ib0", "NCCL_SOCKET_IFNAME", "(none)", "(none)" },
	{ "mlx5_0", "WEFT_IB_DEVICES", "=mlx5_0:1", "(none)" },
	{ "^mlx5_0,mlx5_1", "WEFT_IB_DEVICES", "(none)", "1" },
	{ "mlx5_7", "NCCL_IB_HCA", "mlx5_7", "(none)" },
};

ParameterizedTestParameters(env, nccls_own_infiniband_takes_the_same)
{
	return cr_make_param_array(struct hcas, said_of_hcas,
				   sizeof(said_of_hcas) /
					   sizeof(*said_of_hcas));
}

ParameterizedTest(struct hcas *h, env, nccls_own_infiniband_takes_the_same,
		  .init = two_adapters, .fini = folder_end)
{
	struct weft_nccl_setting s;

	if (*h->in)
		setenv(h->in, h->said, 1);
	cr_expect(eq(str, (char *)ask("NCCL_IB_HCA"), h->hca), "%s=%s", h->in,
		  h->said);
	cr_expect(eq(str, (char *)ask("NCCL_IB_DISABLE"), h->disable), "%s=%s",
		  h->in, h->said);
	weft_nccl_env(2, &s);
	if (s.value)
		cr_expect(eq(str, (char *)s.origin, h->in));
}

/* It is unknown here whether NCCL will have a tuner that lowers it. */
Test(env, env_plugin_alone_raises_no_channels)
{
	setenv("NCCL_NET_PLUGIN", "weft", 1);
	cr_expect(eq(str, (char *)ask("NCCL_MIN_NCHANNELS"), "(none)"));
	setenv("NCCL_MIN_NCHANNELS", "4", 1);
	cr_expect(eq(str, (char *)ask("NCCL_MIN_NCHANNELS"), "4"));
}

/* NCCL 2.28 forgets the plugin's name when it unloads it. */
Test(env, weft_plugin_is_kept_loaded)
{
	setenv("NCCL_NET_PLUGIN", "weft", 1);
	cr_expect(eq(str, (char *)ask("NCCL_NET_PLUGIN_REF_COUNT"), "1"));
	setenv("NCCL_NET_PLUGIN_REF_COUNT", "0", 1);
	cr_expect(eq(str, (char *)ask("NCCL_NET_PLUGIN_REF_COUNT"), "0"));
}

Test(env, other_plugins_are_not_kept_loaded)
{
	setenv("NCCL_NET_PLUGIN", "/home/weft/lib/libnccl-net-ofi.so", 1);
	cr_expect(eq(str, (char *)ask("NCCL_NET_PLUGIN_REF_COUNT"), "(none)"));
}

Test(env, first_plugin_of_a_list_decides)
{
	setenv("NCCL_NET_PLUGIN", "aws-ofi,weft", 1);
	cr_expect(eq(str, (char *)ask("NCCL_NET_PLUGIN_REF_COUNT"), "(none)"));
}

Test(env, plugin_named_by_nccl_net_is_kept_loaded)
{
	setenv("NCCL_NET_PLUGIN", "aws-ofi,/opt/weft/libnccl-net-weft.so", 1);
	setenv("NCCL_NET", "weft", 1);
	cr_expect(eq(str, (char *)ask("NCCL_NET_PLUGIN_REF_COUNT"), "1"));
}

/*
 * What `weft run` sets and `weft info nccl` shows is what NCCL would get.
 */
Test(env, list_of_variables_is_complete)
{
	struct weft_nccl_setting s;
	size_t i, n = weft_nccl_env_count();
	bool found = false;

	cr_assert(le(sz, n, WEFT_NCCL_ENV_MAX));
	for (i = 0; i < n; i++) {
		weft_nccl_env(i, &s);
		found |= !strcmp(s.name, "NCCL_NET_PLUGIN_REF_COUNT");
		cr_expect(ne(str, (char *)s.name, ""));
	}
	cr_expect(found);
	weft_nccl_env(n, &s);
	cr_expect(eq(str, (char *)s.name, ""));
}

static unsigned int warnings;
static char warning[1024];

static void logger(enum nccl_log_level level, unsigned long subsys,
		   const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	if (level != NCCL_LOG_WARN)
		return;
	warnings++;
	va_start(ap, fmt);
	vsnprintf(warning, sizeof(warning), fmt, ap);
	va_end(ap);
}

/* One of the plugins that were built. */
static const char *built(const char *name)
{
	static char path[4200];

	cr_assert(getenv("WEFT_BUILD") != NULL, "run it by make check");
	snprintf(path, sizeof(path), "%s/nccl_net/.libs/%s.so",
		 getenv("WEFT_BUILD"), name);
	return path;
}

static void *load(const char *name)
{
	void *lib = dlopen(built(name), RTLD_NOW | RTLD_LOCAL);

	cr_assert(lib != NULL, "%s", dlerror());
	return lib;
}

/* NCCL itself would go by sockets without a word. */
Test(env, missing_net_plugin_is_logged_by_nccl)
{
	struct nccl_env_v2 *v2;
	void *lib;

	setenv("NCCL_NET_PLUGIN", "weft,/no/where/libnccl-net-weft.so,other",
	       1);
	lib = load("libnccl-env-weft");
	v2 = dlsym(lib, "ncclEnvPlugin_v2");
	cr_assert(v2 != NULL);
	cr_expect(eq(int, v2->init(2, 32, 3, "", logger), NCCL_SUCCESS));
	cr_expect(eq(uint, warnings, 1));
	cr_expect(strstr(warning,
			 "NCCL_NET_PLUGIN names "
			 "'/no/where/libnccl-net-weft.so' (No such file") !=
			  NULL,
		  "%s", warning);
	cr_expect(eq(int, v2->finalize(), NCCL_SUCCESS));
	cr_expect(eq(int, dlclose(lib), 0));
}

/* As NCCL 2.28.7 and later load it. */
Test(env, both_versions_answer_without_the_net_plugin)
{
	struct nccl_env_v1 *v1;
	struct nccl_env_v2 *v2;
	void *lib = load("libnccl-env-weft");

	setenv("NCCL_NET_PLUGIN", built("libnccl-net-weft"), 1);
	setenv("NCCL_ALGO", "Ring", 1);
	v1 = dlsym(lib, "ncclEnvPlugin_v1");
	v2 = dlsym(lib, "ncclEnvPlugin_v2");
	cr_assert(v1 && v2);
	cr_expect(eq(str, (char *)v1->name, "weft"));
	cr_expect(eq(int, v1->init(2, 28, 9, ""), NCCL_SUCCESS));
	cr_expect(eq(str, (char *)v1->get_env("NCCL_ALGO"), "Ring"));
	cr_expect(
		eq(str, (char *)v1->get_env("NCCL_NET_PLUGIN_REF_COUNT"), "1"));
	cr_expect(eq(int, v1->finalize(), NCCL_SUCCESS));
	cr_expect(eq(int, v2->init(2, 32, 3, "", logger), NCCL_SUCCESS));
	cr_expect(eq(uint, warnings, 0), "%s", warning);
	cr_expect(v2->get_env("NCCL_PROTO") == NULL);
	cr_expect(eq(int, v2->finalize(), NCCL_SUCCESS));
	cr_expect(eq(int, dlclose(lib), 0));
}

/* What the network plugin leaves in the environment after its init. */
static const char *after_init(int *init, int *ndev)
{
	void *lib = load("libnccl-net-weft");
	struct nccl_net_v9 *v9 = dlsym(lib, "ncclNetPlugin_v9");

	*init = v9->init(logger);
	if (!*init)
		*init = v9->devices(ndev);
	cr_expect(eq(int, dlclose(lib), 0));
	return getenv("NCCL_SOCKET_IFNAME") ?: "(none)";
}

Test(env, sockets_get_interfaces_if_weft_declines)
{
	int init, ndev;

	setenv("UCX_NET_DEVICES", "lo", 1);
	setenv("WEFT_FAMILY", "ipv4", 1);
	setenv("WEFT_SECRET_FILE", "/no/such/file", 1);
	cr_expect(eq(str, (char *)after_init(&init, &ndev), "=lo"));
	cr_expect(ne(int, init, NCCL_SUCCESS));
	cr_expect(eq(str, getenv("NCCL_SOCKET_FAMILY"), "AF_INET"));
}

Test(env, sockets_get_interfaces_if_another_network_is_named)
{
	int init, ndev = 0;

	setenv("UCX_NET_DEVICES", "lo", 1);
	setenv("NCCL_NET", "Socket", 1);
	cr_expect(eq(str, (char *)after_init(&init, &ndev), "=lo"));
	cr_expect(eq(int, init, NCCL_SUCCESS));
}

Test(env, users_interfaces_are_not_overridden)
{
	int init, ndev = 0;

	setenv("WEFT_NET_DEVICES", "lo", 1);
	setenv("NCCL_NET", "Socket", 1);
	setenv("NCCL_SOCKET_IFNAME", "eth", 1);
	cr_expect(eq(str, (char *)after_init(&init, &ndev), "eth"));
}

/* The next plugin of this process would take it for the user's word. */
Test(env, sockets_get_nothing_if_weft_is_used)
{
	int init, ndev = 0;

	setenv("UCX_NET_DEVICES", "lo", 1);
	cr_expect(eq(str, (char *)after_init(&init, &ndev), "(none)"));
	cr_expect(eq(int, init, NCCL_SUCCESS));
	cr_expect(ge(int, ndev, 1));
}
