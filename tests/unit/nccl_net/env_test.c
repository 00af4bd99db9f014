/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>
#include "bootstrap/settings.h"
#include "nccl_net/env.h"

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
	weft_settings_reset();
}

TestSuite(env, .init = clean);

Test(env, says_nothing_by_itself)
{
	cr_expect(eq(str, (char *)ask("NCCL_SOCKET_IFNAME"), "(none)"));
	cr_expect(eq(str, (char *)ask("NCCL_SOCKET_FAMILY"), "(none)"));
	cr_expect(eq(str, (char *)ask("NCCL_ALGO"), "(none)"));
}

Test(env, passes_the_users_own_through)
{
	setenv("NCCL_ALGO", "Ring", 1);
	setenv("NCCL_SOCKET_IFNAME", "eth", 1);
	setenv("WEFT_NET_DEVICES", "lo", 1);
	cr_expect(eq(str, (char *)ask("NCCL_ALGO"), "Ring"));
	cr_expect(eq(str, (char *)ask("NCCL_SOCKET_IFNAME"), "eth"));
}

Test(env, tells_nccl_what_ucx_was_told)
{
	struct weft_nccl_setting s;

	setenv("UCX_NET_DEVICES", "lo", 1);
	setenv("WEFT_FAMILY", "ipv4", 1);
	cr_expect(eq(str, (char *)ask("NCCL_SOCKET_IFNAME"), "=lo"));
	cr_expect(eq(str, (char *)ask("NCCL_SOCKET_FAMILY"), "AF_INET"));
	weft_nccl_env(0, &s);
	cr_expect(eq(str, (char *)s.origin, "UCX_NET_DEVICES"));
}

/* Nobody here knows whether NCCL will have a tuner to take some back. */
Test(env, no_channels_without_the_network_plugin)
{
	setenv("NCCL_NET_PLUGIN", "weft", 1);
	cr_expect(eq(str, (char *)ask("NCCL_MIN_NCHANNELS"), "(none)"));
	setenv("NCCL_MIN_NCHANNELS", "4", 1);
	cr_expect(eq(str, (char *)ask("NCCL_MIN_NCHANNELS"), "4"));
}
