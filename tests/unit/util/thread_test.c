/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/thread.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

static sigset_t taken;

static void *report(void *arg)
{
	pthread_sigmask(SIG_SETMASK, NULL, &taken);
	return arg;
}

Test(thread, takes_no_signal)
{
	sigset_t before, after;
	pthread_t thread;
	void *ret;
	int sig;

	pthread_sigmask(SIG_SETMASK, NULL, &before);
	cr_assert_eq(weft_thread_start(&thread, "weft-test", report, &sig), 0);
	cr_assert_eq(pthread_join(thread, &ret), 0);
	cr_assert_eq(ret, &sig);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	for (sig = 1; sig < 32; sig++) {
		cr_assert_eq(sigismember(&after, sig),
			     sigismember(&before, sig), "signal %d", sig);
		if (sig != SIGKILL && sig != SIGSTOP)
			cr_assert(sigismember(&taken, sig), "signal %d", sig);
	}
}

static void *wait_for_it(void *lock)
{
	pthread_mutex_lock(lock);
	pthread_mutex_unlock(lock);
	return NULL;
}

Test(thread, has_its_name)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_t thread;
	char name[16];

	pthread_mutex_lock(&lock);
	cr_assert_eq(
		weft_thread_start(&thread, "weft-test", wait_for_it, &lock), 0);
	cr_assert_eq(pthread_getname_np(thread, name, sizeof(name)), 0);
	pthread_mutex_unlock(&lock);
	pthread_join(thread, NULL);
	cr_assert_str_eq(name, "weft-test");
}

Test(thread, says_when_there_is_none)
{
	const char *sanitized = getenv("WEFT_SANITIZED");
	struct rlimit none = { 1 << 20, 1 << 20 };
	pthread_t thread;

	if (sanitized && *sanitized)
		cr_skip_test("a sanitizer needs the memory itself");
	/* no room for a stack */
	cr_assert_eq(setrlimit(RLIMIT_AS, &none), 0);
	cr_assert_eq(weft_thread_start(&thread, "weft-test", report, NULL),
		     -EAGAIN);
}
