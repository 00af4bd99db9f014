/* SPDX-License-Identifier: BSD-3-Clause */
/* libnccl-env-weft.so: NCCL asks it for every NCCL_* setting. */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "nccl_net/abi/env.h"
#include "nccl_net/api/env.h"
#include "nccl_net/introduce/introduce.h"
#include "nccl_net/common/log.h"
#include "nccl_net/api/versions.h"
#include "util/log.h"
#include "util/util.h"

/*
 * The network plugin is installed beside this one.  It holds the state of the
 * introduction even if NCCL has loaded it, too.
 */
static void *find_introduce(void)
{
	static const char name[] = "libnccl-net-weft.so";
	char path[PATH_MAX];
	const char *slash;
	Dl_info me;
	void *lib;

	if (!dladdr(name, &me) || !me.dli_fname)
		return NULL;
	slash = strrchr(me.dli_fname, '/');
	if (snprintf(path, sizeof(path), "%.*s%s",
		     slash ? (int)(slash + 1 - me.dli_fname) : 0, me.dli_fname,
		     name) >= (int)sizeof(path))
		return NULL;
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		weft_info("not introduced to other containers of this host: %s",
			  dlerror());
		return NULL;
	}
	/* never close it: NCCL keeps pointers to its answers */
	return dlsym(lib, "weft_nccl_introduce");
}

static const char *introduce_nccl(const void *inside, const char *name)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static weft_introduce_fn introduce;
	static bool tried;

	pthread_mutex_lock(&lock);
	if (!tried)
		introduce = (weft_introduce_fn)find_introduce();
	tried = true;
	pthread_mutex_unlock(&lock);
	return introduce ? introduce(inside, WEFT_INTRODUCE_BY_ENV, name)
			 : NULL;
}

/* Does weft supply a value for @name if NCCL is introduced? */
static bool is_decided_by_introduction(const char *name)
{
	static const char *const names[] = { WEFT_SAMEHOST_VARIABLES };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

static const char *get_env(const char *name)
{
	const void *inside = __builtin_return_address(0);
	const char *v = weft_nccl_env_get(name), *answer;

	if (!strcmp(name, "NCCL_COMM_ID")) {
		introduce_nccl(inside, name);
	} else if ((!v || !*v) && is_decided_by_introduction(name)) {
		answer = introduce_nccl(inside, name);
		v = answer ? answer : v;
	}
	return v;
}

static enum nccl_result init_v2(uint8_t major, uint8_t minor, uint8_t patch,
				const char *suffix, nccl_logger log)
{
	weft_nccl_log_to(log, NCCL_SUBSYS_INIT | NCCL_SUBSYS_ENV);
	weft_nccl_plugin_lost();
	return NCCL_SUCCESS;
}

static enum nccl_result init_v1(uint8_t major, uint8_t minor, uint8_t patch,
				const char *suffix)
{
	return init_v2(major, minor, patch, suffix, NULL);
}

static enum nccl_result finalize_env(void)
{
	return NCCL_SUCCESS;
}

extern struct nccl_env_v1 ncclEnvPlugin_v1;
WEFT_EXPORT struct nccl_env_v1 ncclEnvPlugin_v1 = {
	.name = WEFT_NCCL_NAME,
	.init = init_v1,
	.finalize = finalize_env,
	.get_env = get_env,
};

extern struct nccl_env_v2 ncclEnvPlugin_v2;
WEFT_EXPORT struct nccl_env_v2 ncclEnvPlugin_v2 = {
	.name = WEFT_NCCL_NAME,
	.init = init_v2,
	.finalize = finalize_env,
	.get_env = get_env,
};
