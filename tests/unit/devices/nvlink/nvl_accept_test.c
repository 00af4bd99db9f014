/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers that cannot be accepted now: they wait, a process that
 * sleeps goes on, and they are served as soon as it can be.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "settings/settings.h"
#include "tests/lib/fds.h"
#include "tests/unit/devices/nvl_pair.h"

#define FDS   400
#define TRIES 200

static int fds[FDS];
static unsigned int nfds;
static rlim_t promised;

/* getrlimit() of this program: what is promised may be less than there is. */
int getrlimit(__rlimit_resource_t what, struct rlimit *lim)
{
	int ret = (int)syscall(SYS_prlimit64, 0, what, NULL, lim);

	if (promised && !ret && what == RLIMIT_NOFILE)
		lim->rlim_cur = promised;
	return ret;
}

static void begin(void)
{
	struct rlimit lim = { FDS, FDS };

	begin_folder();
	load_fake();
	cr_assert(eq(int, setrlimit(RLIMIT_NOFILE, &lim), 0));
	open_both();
}

static void finish(void)
{
	side_close(&a);
	side_close(&b);
	end_folder();
}

TestSuite(nvl_accept, .init = begin, .fini = finish, .timeout = 120);

static void let_go(void)
{
	while (nfds)
		close(fds[--nfds]);
}

/* Progresses it until it may sleep; is there anything that wakes it at once? */
static bool sleeps(void)
{
	do
		nvl->progress(a.iface);
	while (nvl->arm(a.iface));
	return !side_is_woken(&a, 0);
}

/* Its timer may fire in between, but not each time. */
static bool ever_sleeps(void)
{
	unsigned int i;

	for (i = 0; i < TRIES; i++)
		if (sleeps())
			return true;
	return false;
}

/* As a program that does nothing before it is woken. */
static void meet_asleep(void)
{
	const uint64_t end = now_ms() + WAIT_MS;

	while (!nvl->ready(b.ep)) {
		nvl->progress(b.iface);
		if (side_is_woken(&a, 0))
			sleeps();
		cr_assert(lt(u64, now_ms(), end), "never accepted");
		cr_assert(eq(uint, a.errors + b.errors, 0));
	}
}

/* One more that connects to a, if there is room, and says nothing. */
static bool dial_silently(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct weft_iface_attr attr;
	socklen_t len;

	nvl->iface_query(a.iface, &attr);
	len = offsetof(struct sockaddr_un, sun_path) + 1 +
	      (socklen_t)snprintf(sa.sun_path + 1, sizeof(sa.sun_path) - 1,
				  "weft-%016" PRIx64,
				  weft_key_id(attr.addr.key));
	fds[nfds] =
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	cr_assert(ge(int, fds[nfds], 0));
	if (connect(fds[nfds], (struct sockaddr *)&sa, len)) {
		cr_assert(eq(int, errno, EAGAIN));
		close(fds[nfds]);
		return false;
	}
	nfds++;
	return true;
}

static void use_all_descriptors(void)
{
	while ((fds[nfds] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		nfds++;
	cr_assert(eq(int, errno, EMFILE));
}

Test(nvl_accept, running_out_of_descriptors_warns_once_and_sleeps)
{
	/* one with a deadline, for which it has a timer from then on */
	cr_assert(dial_silently());
	cr_expect(ever_sleeps());
	cr_assert(eq(int, side_dial(&b, &a), 0));
	use_all_descriptors();
	cr_expect(ever_sleeps(), "it is woken again and again");
	cr_expect(eq(uint, log_lines("raise the limit"), 1));
	cr_expect(ever_sleeps());
	cr_expect(eq(uint, log_lines(""), 1));
	cr_assert(eq(int, nvl->ready(b.ep), 0));
	let_go();
	meet_asleep();
	cr_expect(eq(uint, log_lines(""), 1));
}

/* Without a descriptor for a timer nothing would wake it. */
Test(nvl_accept, running_out_of_descriptors_before_the_first_deadline)
{
	unsigned int i;
	int armed = 0;

	cr_assert(eq(int, side_dial(&b, &a), 0));
	use_all_descriptors();
	for (i = 0; i < TRIES && !log_lines("cannot create a timer"); i++) {
		nvl->progress(a.iface);
		armed = nvl->arm(a.iface);
	}
	cr_expect(eq(int, armed, -EBUSY));
	let_go();
	sleeps();
	meet_asleep();
	cr_expect(eq(uint, log_lines("cannot create a timer"), 1));
}

/* They say nothing, and their deadline is far. */
static void among_unproven(bool leave)
{
	while (nfds < 160)
		if (!dial_silently())
			sleeps();
	cr_assert(eq(int, side_dial(&b, &a), 0));
	cr_expect(ever_sleeps(), "it is woken again and again");
	cr_assert(eq(int, nvl->ready(b.ep), 0));
	if (leave)
		let_go();
	meet_asleep();
	cr_expect(eq(uint, log_lines(""), 0));
	let_go();
}

Test(nvl_accept, full_table_of_unproven_connections_still_accepts)
{
	among_unproven(true);
}

/* Nor must they go first. */
Test(nvl_accept, unproven_connections_keep_no_peer_out)
{
	setenv("WEFT_CONNECT_TIMEOUT", "3600s", 1);
	weft_settings_reset();
	among_unproven(false);
}

/* As long as it is there at all, its words are waited for some seconds. */
Test(nvl_accept, silent_unproven_connections_are_dropped)
{
	unsigned int before = count_fds();

	setenv("WEFT_CONNECT_TIMEOUT", "3600s", 1);
	weft_settings_reset();
	dial_silently();
	while (count_fds() < before + 2)
		nvl->progress(a.iface);
	while (count_fds() > before + 1)
		nvl->progress(a.iface);
	let_go();
}

/* Proven peers, too, leave the program a quarter of its descriptors. */
Test(nvl_accept, proven_peers_are_bounded)
{
	struct weft_ep *first[6];
	unsigned int i;

	promised = 8;
	for (i = 0; i < 6; i++) {
		meet(&b, &a);
		first[i] = b.ep;
	}
	cr_expect(eq(uint, log_lines(""), 0));
	cr_assert(eq(int, side_dial(&b, &a), 0));
	wait_for(b.errors);
	cr_expect(eq(int, b.error, -ECONNREFUSED));
	nvl->ep_destroy(b.ep);
	cr_expect(eq(uint, log_lines("turned away on 'nvlink'"), 1));
	cr_expect(eq(uint, log_lines(""), 1));
	cr_expect(eq(uint, b.errors, 1), "of the last one alone");
	/* one that leaves makes room for another */
	nvl->ep_destroy(first[0]);
	do {
		b.errors = 0;
		cr_assert(eq(int, side_dial(&b, &a), 0));
		wait_for(b.errors || nvl->ready(b.ep));
		if (b.errors)
			nvl->ep_destroy(b.ep);
	} while (b.errors);
	for (i = 1; i < 6; i++)
		nvl->ep_destroy(first[i]);
}
