/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/lib/tcp_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/hello.h"
#include "util/bytes.h"

void tcp_peer_wait(struct tcp_peer *p, int fd, short events)
{
	struct pollfd pfd = { .fd = fd, .events = events };
	int i;

	for (i = 0; poll(&pfd, 1, i > 20) <= 0; i++)
		p->iface->ops->progress(p->iface);
}

int tcp_peer_read(struct tcp_peer *p, int fd, void *buf, size_t len)
{
	uint8_t *b = buf;
	ssize_t n;

	while (len) {
		tcp_peer_wait(p, fd, POLLIN);
		n = recv(fd, b, len, MSG_DONTWAIT);
		if (n <= 0)
			return -ECONNRESET;
		b += n;
		len -= n;
	}
	return 0;
}

/*
 * Every connection from an address of its own out of 127/8: closed ones wait a
 * minute for stray segments, and one address has but 28,000 ports.
 */
static int dial(struct tcp_peer *p, int rcvbuf)
{
	static uint32_t count;
	struct sockaddr_in from = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(0x7f010000 + count++ % 0x00fe0000),
	};
	const struct sockaddr *to = &p->addr.sa.sa;
	int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), err;

	if (fd < 0)
		return -errno;
	if (rcvbuf)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof(rcvbuf));
	/* libFuzzer's timer may interrupt it; it then goes on by itself */
	if ((to->sa_family == AF_INET &&
	     bind(fd, (struct sockaddr *)&from, sizeof(from))) ||
	    (connect(fd, to, weft_sockaddr_len(&p->addr.sa)) &&
	     errno != EINTR)) {
		err = -errno;
		close(fd);
		return err;
	}
	tcp_peer_wait(p, fd, POLLOUT);
	return fd;
}

int tcp_peer_join(struct tcp_peer *p, enum tcp_purpose purpose, uint64_t token,
		  int rcvbuf)
{
	static const uint8_t own[WEFT_KEY_LEN] = "a test's key";
	uint8_t bytes[WEFT_HELLO_PURPOSE] = { purpose };
	struct weft_hello h;
	int fd = dial(p, rcvbuf), err = 0;

	if (fd < 0)
		return fd;
	if (purpose == TCP_PURPOSE_MESSAGES)
		weft_put_le32(bytes + 4, ++p->sequence);
	else
		weft_put_le64(bytes + 8, token);
	weft_hello_dial(&h, p->addr.key, own, bytes);
	while (!err && h.state != WEFT_HELLO_DONE) {
		if (h.state == WEFT_HELLO_SENDING) {
			if (send(fd, h.out, h.out_len, MSG_NOSIGNAL) !=
			    (ssize_t)h.out_len)
				err = -EPIPE;
			h.out_done = h.out_len;
		} else if (h.state == WEFT_HELLO_READING) {
			err = tcp_peer_read(p, fd, h.in + h.have,
					    h.want - h.have);
			h.have = h.want;
		} else {
			err = h.err ? h.err : -EPROTO;
		}
		if (!err)
			weft_hello_step(&h);
	}
	if (!err && h.verdict != WEFT_HELLO_ACCEPTED)
		err = -ECONNREFUSED;
	if (!err)
		return fd;
	close(fd);
	return err;
}

int tcp_peer_meet(struct tcp_peer *p, uint64_t *token)
{
	uint8_t welcome[TCP_FRAME_LEN + 8];
	int fd = tcp_peer_join(p, TCP_PURPOSE_MESSAGES, 0, 0), err;

	if (fd < 0)
		return fd;
	err = tcp_peer_read(p, fd, welcome, sizeof(welcome));
	if (!err && welcome[0] != TCP_FRAME_WELCOME)
		err = -EPROTO;
	if (err) {
		close(fd);
		return err;
	}
	*token = weft_get_le64(welcome + TCP_FRAME_LEN);
	return fd;
}
