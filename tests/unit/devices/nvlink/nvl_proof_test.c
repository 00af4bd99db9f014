/* SPDX-License-Identifier: BSD-3-Clause */
/* No descriptor leaves before both sides have proven that they have the key. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bootstrap/hello.h"
#include "tests/lib/nvl_liar.h"
#include "util/clock.h"

static const struct weft_dev_ops *const nvl = &weft_nvlink_ops;
static struct liar_victim victim;
static struct weft_ep *ep;
static int ended;

static void on_error(void *arg, struct weft_ep *dead, void *user, int err)
{
	ended = err;
}

static socklen_t name_of(const struct weft_address *addr,
			 struct sockaddr_un *sa)
{
	*sa = (struct sockaddr_un){ .sun_family = AF_UNIX };
	return offsetof(struct sockaddr_un, sun_path) + 1 +
	       (socklen_t)snprintf(sa->sun_path + 1, sizeof(sa->sun_path) - 1,
				   "weft-%016" PRIx64, weft_key_id(addr->key));
}

static void open_victim(void)
{
	const struct weft_iface_cb cb = { .on_error = on_error };

	liar_victim_open(&victim, &cb);
}

static void close_victim(void)
{
	liar_victim_close(&victim);
}

TestSuite(nvl_proof, .init = open_victim, .fini = close_victim, .timeout = 120);

static int dial_unproven(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un sa;
	socklen_t len = name_of(&victim.attr.addr, &sa);

	cr_assert(eq(int, connect(fd, (struct sockaddr *)&sa, len), 0));
	return fd;
}

/* One message of what comes: its bytes; 0: nothing yet; -1: the end. */
static ssize_t take(int fd, uint8_t *buf, size_t len)
{
	union {
		char buf[CMSG_SPACE(8 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { buf, len };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.buf,
			    .msg_controllen = sizeof(control.buf) };
	ssize_t n;

	nvl->progress(victim.iface);
	n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return 0;
	cr_assert(n <= 0 || !CMSG_FIRSTHDR(&m),
		  "a descriptor came before the proof");
	return n > 0 ? n : -1;
}

static void take_all(int fd)
{
	const uint64_t end = weft_now_ms() + LIAR_WAIT_MS;
	uint8_t buf[256];
	ssize_t n;

	do {
		n = take(fd, buf, sizeof(buf));
		cr_assert(lt(u64, weft_now_ms(), end), "it does not hang up");
	} while (n >= 0);
	close(fd);
}

Test(nvl_proof, no_descriptor_for_garbage)
{
	uint8_t garbage[WEFT_HELLO_MAX];
	int fd = dial_unproven();

	memset(garbage, 0x5a, sizeof(garbage));
	cr_assert(
		gt(long, send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL), 0));
	take_all(fd);
}

/* The hello is right, and so is the form of the proof; the key is not. */
Test(nvl_proof, no_descriptor_for_a_wrong_key)
{
	static const uint8_t wrong[WEFT_KEY_LEN] = "not the key";
	const uint32_t purpose[4] = { NVL_PURPOSE };
	/* magic, PROOF, its length, version; then two proofs of 16 bytes */
	uint8_t proof[40] = { 'W', 'E', 'F', 'T', 3, 40, 1 };
	uint8_t challenge[WEFT_HELLO_MAX];
	struct weft_hello h;
	ssize_t n;
	int fd = dial_unproven();

	weft_hello_dial(&h, wrong, liar_key, (const uint8_t *)purpose);
	cr_assert(eq(long, send(fd, h.out, h.out_len, MSG_NOSIGNAL),
		     (long)h.out_len));
	liar_wait(&victim, (n = take(fd, challenge, sizeof(challenge))) != 0);
	cr_assert(eq(long, n, 40));
	cr_assert(eq(int, challenge[4], 2), "no challenge came");
	/* its own proof is the nearest to one that a dialler without a key sees
	 */
	memcpy(proof + 8, challenge + 24, 16);
	memcpy(proof + 24, challenge + 24, 16);
	cr_assert(eq(long, send(fd, proof, sizeof(proof), MSG_NOSIGNAL),
		     sizeof(proof)));
	take_all(fd);
}

/* Another process has taken the name of the one that is dialled. */
Test(nvl_proof, no_descriptor_for_a_squatter)
{
	int own = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
	uint8_t buf[WEFT_HELLO_MAX];
	uint8_t challenge[40] = { 'W', 'E', 'F',	   'T',
				  2,   40,  WEFT_WIRE_MIN, WEFT_WIRE_MAX };
	struct sockaddr_un sa;
	socklen_t len = name_of(&victim.liar, &sa);
	ssize_t n;

	cr_assert(eq(int, bind(own, (struct sockaddr *)&sa, len), 0));
	cr_assert(eq(int, listen(own, 1), 0));
	cr_assert(eq(int, nvl->ep_create(victim.iface, &victim.liar, NULL, &ep),
		     0));
	fd = accept4(own, NULL, NULL, SOCK_CLOEXEC);
	cr_assert(ge(int, fd, 0));
	liar_wait(&victim, (n = take(fd, buf, sizeof(buf))) != 0);
	cr_assert(eq(int, buf[4], 1), "no hello came");
	cr_assert(eq(long, send(fd, challenge, sizeof(challenge), MSG_NOSIGNAL),
		     sizeof(challenge)));
	take_all(fd);
	liar_wait(&victim, ended);
	cr_expect(eq(int, ended, -EACCES));
	nvl->ep_destroy(ep);
	close(own);
}
