/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers of the TCP device that want more than their share of descriptors. */
#include "tests/conformance/pair.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/hello.h"
#include "tests/conformance/cases/cheat.h"
#include "util/bytes.h"

/* A listener that proves itself: the socket that @victim dialled. */
static int meet_at(struct side *victim, const uint8_t *key)
{
	struct weft_address where = victim->attr.addr;
	socklen_t len = weft_sockaddr_len(&where.sa);
	struct weft_hello h;
	int listener, fd;
	ssize_t n;

	if (where.sa.sa.sa_family == AF_INET6)
		where.sa.in6.sin6_port = 0;
	else
		where.sa.in.sin_port = 0;
	listener = socket(where.sa.sa.sa_family, SOCK_STREAM, 0);
	check(!bind(listener, &where.sa.sa, len) && !listen(listener, 4096) &&
		      !getsockname(listener, &where.sa.sa, &len),
	      "no listener");
	memcpy(where.key, key, WEFT_KEY_LEN);
	check_int(victim->ops->ep_create(victim->iface, &where, NULL,
					 &victim->ep),
		  0);
	fd = accept(listener, NULL, NULL);
	weft_hello_listen(&h, key);
	while (h.state != WEFT_HELLO_DONE && h.state != WEFT_HELLO_FAILED) {
		both_progress(victim, NULL);
		if (h.state == WEFT_HELLO_DECIDE) {
			weft_hello_verdict(&h, WEFT_HELLO_ACCEPTED);
			continue;
		}
		if (h.state == WEFT_HELLO_SENDING) {
			n = send(fd, h.out, h.out_len, MSG_NOSIGNAL);
			h.out_done = n > 0 ? n : 0;
		} else {
			n = recv(fd, h.in + h.have, h.want - h.have,
				 MSG_DONTWAIT);
			h.have += n > 0 ? n : 0;
		}
		weft_hello_step(&h);
	}
	check(h.state == WEFT_HELLO_DONE, "the meeting ended with %d", h.err);
	return fd;
}

/* The dialer is asked for more sockets than a pair may have. */
static void endless_streams(void)
{
	enum { MANY = 100 };
	static const uint8_t key[WEFT_KEY_LEN] = "a cheat's own";
	uint8_t welcome[TCP_FRAME_LEN + 8] = { TCP_FRAME_WELCOME };
	uint8_t ask[TCP_FRAME_LEN + 4] = { TCP_FRAME_STREAMS };
	unsigned int i, before, most = 0;
	struct side victim;
	struct tcp_peer p;
	int fd;

	cheat_begin(&victim, &p);
	fd = meet_at(&victim, key);
	before = count_descriptors();
	weft_put_le32(welcome + 4, 8);
	weft_put_le64(welcome + TCP_FRAME_LEN, 1);
	cheat_say(fd, welcome, sizeof(welcome));
	weft_put_le32(ask + 4, 4);
	weft_put_le32(ask + TCP_FRAME_LEN, 64);
	for (i = 0; i < MANY && !victim.errors; i++) {
		if (send(fd, ask, sizeof(ask), MSG_NOSIGNAL) < 0)
			break;
		both_progress(&victim, NULL);
		most = count_descriptors() > most ? count_descriptors() : most;
	}
	wait_for(&victim, NULL, victim.errors);
	check(most <= before + 2 * 64, "%u sockets for one peer",
	      most - before);
	check_int(log_lines("breaks the protocol"), 1);
	check_int(victim.error, -EPROTO);
	close(fd);
	side_close(&victim);
}

/*
 * The accepting side gets more streams than a pair may have, or unrequested
 * ones.
 */
static void uncalled_streams(void)
{
	enum { MANY = 300 };
	struct side victim;
	struct tcp_peer p;
	uint64_t token;
	int fd, fds[MANY];
	unsigned int n;

	fd = cheat_meet(&victim, &p, &token);
	check_int(tcp_peer_join(&p, TCP_PURPOSE_BULK_IN, token, 0),
		  -ECONNREFUSED);
	for (n = 0; n < MANY; n++) {
		fds[n] = tcp_peer_join(&p, TCP_PURPOSE_BULK_OUT, token, 0);
		if (fds[n] < 0)
			break;
	}
	check(n >= 64 && n <= 128, "%u streams from one peer", n);
	check_int(fds[n], -ECONNREFUSED);
	while (n--)
		close(fds[n]);
	close(fd);
	side_close(&victim);
}

/* A peer with the key connects until descriptors run out. */
static void endless_connections(void)
{
	enum { FDS = 400, MOST = FDS / 4 * 3, BATCH = 40 };
	struct rlimit lim = { FDS, FDS };
	int fds[BATCH], leave[2];
	unsigned int n = 0, i;
	struct side victim;
	struct tcp_peer p;
	uint64_t token;
	char c;

	cheat_begin(&victim, &p);
	check(!setrlimit(RLIMIT_NOFILE, &lim) && !pipe(leave), "no pipe");
	for (;;) {
		for (i = 0; i < BATCH; i++) {
			fds[i] = tcp_peer_meet(&p, &token);
			if (fds[i] < 0)
				break;
		}
		n += i;
		if (i < BATCH)
			break;
		/* its ends go on in a child, so that only ours count here */
		if (!fork()) {
			close(leave[1]);
			_exit(read(leave[0], &c, 1));
		}
		while (i--)
			close(fds[i]);
	}
	check_int(fds[i], -ECONNREFUSED);
	check_int(n, MOST);
	check_int(log_lines("'ulimit -n'"), 1);
	check_int(log_lines(""), 1);
	close(leave[1]);
	side_close(&victim);
}

/* As many as the lowest free number. */
static unsigned int descriptors_in_use(void)
{
	int fd = dup(0);

	close(fd);
	return fd;
}

/*
 * Peers with the key open bulk streams: one takes no more than half of the
 * descriptors, the next one stream each, and a quarter is left.
 */
static void endless_bulk(void)
{
	enum { FDS = 200, PEERS = 40, NEAR = 8 };
	struct rlimit lim = { FDS, FDS };
	unsigned int n, used;
	struct side victim;
	struct tcp_peer p;
	uint64_t token;
	int fd;

	cheat_begin(&victim, &p);
	check(!setrlimit(RLIMIT_NOFILE, &lim), "no limit");
	check(tcp_peer_meet(&p, &token) >= 0, "no meeting");
	while ((fd = tcp_peer_join(&p, TCP_PURPOSE_BULK_OUT, token, 0)) >= 0)
		;
	check_int(fd, -ECONNREFUSED);
	used = descriptors_in_use();
	check(used <= FDS / 2 + 1 && used > FDS / 2 - NEAR,
	      "one peer takes %u of %u descriptors", used, FDS);
	check_int(log_lines(""), 0);
	for (n = 0; n < PEERS; n++) {
		check(tcp_peer_meet(&p, &token) >= 0, "no meeting");
		fd = tcp_peer_join(&p, TCP_PURPOSE_BULK_OUT, token, 0);
		if (fd < 0)
			break;
		check_int(tcp_peer_join(&p, TCP_PURPOSE_BULK_OUT, token, 0),
			  -ECONNREFUSED);
	}
	check_int(fd, -ECONNREFUSED);
	used = descriptors_in_use();
	check(used <= FDS / 4 * 3 + 2 && used > FDS / 4 * 3 - NEAR,
	      "%u peers take %u of %u descriptors", n, used, FDS);
	check_int(log_lines("'ulimit -n'"), 1);
	check_int(log_lines(""), 1);
	side_close(&victim);
}

const struct conformance_test greedy_tests[] = {
	{ "a listener gets no more streams than a pair may have",
	  endless_streams },
	{ "unrequested streams are refused", uncalled_streams },
	{ "a peer cannot take all descriptors", endless_connections },
	{ "a peer's streams cannot either", endless_bulk },
	{ NULL, NULL },
};
