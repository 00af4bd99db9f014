/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/caught.h"
#include "util/clock.h"

/* A careless host. */
static void catch (void *arg, enum weft_level level, const char *file, int line,
		   const char *text)
{
	catch_line(arg, level, file, line, text);
	errno = EDOM;
}

static void to_catch(void)
{
	weft_log_set_sink(catch, NULL);
}

Test(log, drops_what_is_above_the_level, .init = to_catch)
{
	weft_info("not wanted");
	weft_debug("not wanted");
	cr_expect(eq(int, caught.count, 0));
	weft_warn("disk %d", 7);
	cr_expect(eq(int, caught.count, 1));
	cr_expect(eq(int, caught.level, WEFT_LOG_WARN));
	cr_expect(eq(str, caught.text, "disk 7"));
	weft_log_set_level(WEFT_LOG_DEBUG);
	weft_debug("wanted");
	cr_expect(eq(str, caught.text, "wanted"));
	weft_log_set_level(WEFT_LOG_ERROR);
	weft_warn("not wanted");
	cr_expect(eq(str, caught.text, "wanted"));
}

Test(log, does_not_evaluate_what_it_drops, .init = to_catch)
{
	int evaluated = 0;

	weft_debug("%d", ++evaluated);
	cr_expect(eq(int, evaluated, 0));
}

Test(log, fail_appends_the_reason_and_returns_it, .init = to_catch)
{
	int err;

	err = weft_fail(-EADDRINUSE, "cannot bind '%s'", "10.0.0.1");
	cr_expect(eq(int, err, -EADDRINUSE));
	cr_expect(eq(int, caught.level, WEFT_LOG_ERROR));
	cr_expect(eq(str, caught.text,
		     "cannot bind '10.0.0.1': Address already in use"));
}

Test(log, keeps_errno, .init = to_catch)
{
	errno = ENOENT;
	weft_error("text");
	cr_expect(eq(int, errno, ENOENT));
	weft_fail(-EIO, "text");
	cr_expect(eq(int, errno, ENOENT));
}

static uint64_t now_ns = 1000000000;

static uint64_t fake_clock(void)
{
	return now_ns;
}

/* A peer that has us complain without end cannot fill a disk. */
Test(log, rate_is_limited_per_call_site, .init = to_catch)
{
	int i;

	weft_clock_set(fake_clock);
	for (i = 0; i < 1000; i++)
		weft_error("bad frame %d", i);
	cr_expect(eq(int, caught.count, 20));
	expect_caught("bad frame 19 (similar messages");
	for (i = 0; i < 1000; i++)
		weft_fail(-EIO, "frame %d", i);
	cr_expect(eq(int, caught.count, 40));
	cr_expect(eq(int, weft_fail(-EIO, "another place"), -EIO));
	cr_expect(eq(int, caught.count, 41));
	for (i = 0; i < 3; i++) {
		weft_error("round %d", i);
		now_ns += 61000000000;
	}
	cr_expect(eq(int, caught.count, 44));
	for (i = 0; i < 25; i++) {
		weft_error("again");
		now_ns += 61000000000;
	}
	cr_expect(eq(int, caught.count, 69), "they do not come often");
	weft_log_set_level(WEFT_LOG_INFO);
	for (i = 0; i < 100; i++)
		weft_info("asked for");
	cr_expect(eq(int, caught.count, 169));
}

Test(log, warn_once_warns_once_per_call_site, .init = to_catch)
{
	int i;

	for (i = 0; i < 3; i++)
		weft_warn_once("round %d", i);
	cr_expect(eq(int, caught.count, 1));
	cr_expect(eq(str, caught.text, "round 0"));
}

Test(log, cuts_a_long_message_without_harm, .init = to_catch)
{
	char lots[3000];

	memset(lots, 'x', sizeof(lots) - 1);
	lots[sizeof(lots) - 1] = '\0';
	weft_error("%s", lots);
	cr_expect(eq(sz, strlen(caught.text), 1023));
	weft_fail(-EIO, "%s", lots);
	cr_expect(eq(sz, strlen(caught.text), 1023));
}

static size_t stderr_of(void (*talk)(void), char *buf, size_t size)
{
	int fds[2], saved;
	ssize_t n;

	cr_assert(eq(int, pipe(fds), 0));
	saved = dup(STDERR_FILENO);
	dup2(fds[1], STDERR_FILENO);
	talk();
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(fds[1]);
	n = read(fds[0], buf, size - 1);
	cr_assert(ge(int, n, 0));
	buf[n] = '\0';
	close(fds[0]);
	return n;
}

static void one_of_each(void)
{
	weft_log_set_level(WEFT_LOG_INFO);
	weft_error("a");
	weft_warn("b");
	weft_info("c");
	weft_debug("d");
}

Test(log, writes_whole_lines_to_stderr)
{
	char buf[256];

	stderr_of(one_of_each, buf, sizeof(buf));
	cr_expect(eq(int,
		     strcmp(buf, "weft: error: a\n"
				 "weft: warning: b\n"
				 "weft: info: c\n"),
		     0),
		  "%s", buf);
}

static void debug_line(void)
{
	weft_log_set_level(WEFT_LOG_DEBUG);
	weft_debug("d");
}

Test(log, debug_messages_name_file_and_line)
{
	char buf[256];

	stderr_of(debug_line, buf, sizeof(buf));
	cr_expect(ne(ptr, strstr(buf, "weft: debug: "), NULL));
	cr_expect(ne(ptr, strstr(buf, "log_test.c:"), NULL));
}

static void nothing(void)
{
	weft_log_set_sink(catch, NULL);
	weft_error("to the sink");
}

static void back_again(void)
{
	weft_log_set_sink(NULL, NULL);
	weft_error("to stderr");
}

Test(log, a_sink_replaces_stderr_and_null_restores_it)
{
	char buf[64];

	cr_expect(eq(sz, stderr_of(nothing, buf, sizeof(buf)), 0));
	cr_expect(eq(str, caught.text, "to the sink"));
	stderr_of(back_again, buf, sizeof(buf));
	cr_expect(eq(int, strcmp(buf, "weft: error: to stderr\n"), 0), "%s",
		  buf);
}
