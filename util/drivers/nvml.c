/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/drivers/nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct weft_nvml table;
static const char *missing = ""; /* NULL: loaded; "": not tried yet */

static const char *load_nvml(void)
{
	const char *name = secure_getenv("WEFT_LIBNVML"), *lacks = NULL;
	void *lib;

	if (!name || !*name)
		name = "libnvidia-ml.so.1";
	/* never closed: the program may use it, too */
	lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return "the driver's libnvidia-ml.so.1 cannot be loaded";
#define X(field, symbol, args)                        \
	*(void **)&table.field = dlsym(lib, #symbol); \
	if (!table.field)                             \
		lacks = "the driver's libnvidia-ml.so.1 has no " #symbol;
	WEFT_NVML_CALLS(X)
#undef X
	return lacks;
}

const struct weft_nvml *weft_nvml_open(const char **why)
{
	int r;

	pthread_mutex_lock(&lock);
	if (missing && !*missing)
		missing = load_nvml();
	*why = missing;
	pthread_mutex_unlock(&lock);
	if (*why)
		return NULL;
	r = table.init();
	if (r == WEFT_NVML_SUCCESS)
		return &table;
	*why = r == WEFT_NVML_DRIVER_NOT_LOADED
		       ? "NVIDIA's kernel driver is not loaded"
		       : "libnvidia-ml.so.1 cannot be initialised";
	return NULL;
}

void weft_nvml_close(const struct weft_nvml *nvml)
{
	nvml->shutdown();
}
