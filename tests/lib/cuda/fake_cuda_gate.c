/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What every call of the fake driver begins with, and how tests make it fail.
 */
#include <stdio.h>
#include <string.h>

#include "tests/lib/cuda/fake_cuda_int.h"

static bool capturing, capture_broken;
static struct {
	char name[48];
	int after, err;
	bool always;
} failures[16];
static struct {
	int n, err, calls;
	const char *failed;
} any;
static struct {
	char name[48];
	unsigned int calls;
} counts[80];
static char stall[48];
static unsigned int stalled;
static pthread_cond_t stall_cond = PTHREAD_COND_INITIALIZER;

static void count(const char *name)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(counts) - 1 && counts[i].name[0]; i++)
		if (!strcmp(counts[i].name, name))
			break;
	snprintf(counts[i].name, sizeof(counts[i].name), "%s", name);
	counts[i].calls++;
}

/*
 * What is given back is gone, or its context is; and how often a caller asks
 * whether work has ended is a matter of time.
 */
static bool not_counted(const char *name)
{
	return strstr(name, "Query") || strstr(name, "Release") ||
	       strstr(name, "Free") || strstr(name, "Unmap") ||
	       strstr(name, "Unregister") || strstr(name, "Destroy") ||
	       strstr(name, "Close");
}

static int nth(const char *name)
{
	if (not_counted(name) || ++any.calls != any.n)
		return 0;
	any.failed = name;
	return any.err;
}

static int planned(const char *name)
{
	unsigned int i;
	int err;

	pthread_mutex_lock(&fake_lock);
	count(name);
	stalled++;
	while (!strcmp(stall, name))
		pthread_cond_wait(&stall_cond, &fake_lock);
	stalled--;
	err = nth(name);
	for (i = 0; i < ARRAY_SIZE(failures) && !err; i++)
		if (!strcmp(failures[i].name, name) &&
		    (failures[i].always ||
		     (failures[i].after && !--failures[i].after)))
			err = failures[i].err;
	pthread_mutex_unlock(&fake_lock);
	return err;
}

int fake_gate(const char *name, int flags)
{
	if (!fake_inits)
		return WEFT_CU_NOT_INITIALIZED;
	if ((flags & CONTEXT) && !fake_depth)
		return WEFT_CU_INVALID_CONTEXT;
	if (capturing && ((flags & NO_CAPTURE) ||
			  ((flags & UNSAFE) &&
			   fake_capture_mode != WEFT_CU_CAPTURE_RELAXED))) {
		capture_broken = true;
		return WEFT_CU_CAPTURE_UNSUPPORTED;
	}
	return planned(name);
}

/* ---- control ------------------------------------------------------------- */

static void plan(const char *name, int n, int err, bool always)
{
	unsigned int i, at = 0;

	pthread_mutex_lock(&fake_lock);
	for (i = ARRAY_SIZE(failures); i-- > 0;)
		if (!failures[i].name[0] || !strcmp(failures[i].name, name))
			at = i;
	snprintf(failures[at].name, sizeof(failures[at].name), "%s",
		 err ? name : "");
	failures[at].after = n;
	failures[at].err = err;
	failures[at].always = always;
	pthread_mutex_unlock(&fake_lock);
}

EXPORT void fake_cuda_fail(const char *name, int n, int err)
{
	plan(name, n, err, false);
}

EXPORT void fake_cuda_refuse(const char *name, int err)
{
	plan(name, 0, err, true);
}

EXPORT void fake_cuda_fail_at(int n, int err)
{
	pthread_mutex_lock(&fake_lock);
	any.n = n;
	any.err = err;
	any.calls = 0;
	any.failed = NULL;
	pthread_mutex_unlock(&fake_lock);
}

EXPORT int fake_cuda_calls(void)
{
	return any.calls;
}

EXPORT const char *fake_cuda_failed(void)
{
	return any.failed;
}

EXPORT unsigned int fake_cuda_called(const char *name)
{
	unsigned int i, n = 0;

	pthread_mutex_lock(&fake_lock);
	for (i = 0; i < ARRAY_SIZE(counts); i++)
		if (!strcmp(counts[i].name, name))
			n = counts[i].calls;
	pthread_mutex_unlock(&fake_lock);
	return n;
}

EXPORT void fake_cuda_stall(const char *name)
{
	pthread_mutex_lock(&fake_lock);
	snprintf(stall, sizeof(stall), "%s", name ? name : "");
	pthread_cond_broadcast(&stall_cond);
	pthread_mutex_unlock(&fake_lock);
}

EXPORT unsigned int fake_cuda_stalled(void)
{
	unsigned int n;

	pthread_mutex_lock(&fake_lock);
	n = stalled;
	pthread_mutex_unlock(&fake_lock);
	return n;
}

EXPORT void fake_cuda_capture(bool on)
{
	capturing = on;
	capture_broken = false;
}

EXPORT bool fake_cuda_capture_broken(void)
{
	return capture_broken;
}
