/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A cable with a rate, a delay and losses, between two network namespaces,
 * where the kernel has no netem.
 *
 *   wire A B MBIT DELAY_US LOSS_PPM MTU
 *
 * Makes the interface wire0 (a TAP) in the namespaces named A and B, and moves
 * frames between the two until it is killed.  Each way has its rate, a queue
 * that drops what comes when it is full, and the delay behind it.  Of a million
 * frames LOSS_PPM are lost, the same ones in each run.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SLOTS	    32768u
#define FRAME_MAX   9216u
#define QUEUE_LEAST (256u << 10) /* bytes that wait for the rate */
#define HEADER	    14u
#define AT_ONCE	    64u

struct frame {
	uint64_t departs, due;
	size_t len;
	uint8_t *bytes;
};

struct way {
	int from, to;
	uint64_t free_at; /* when the last frame has departed */
	size_t queued;
	unsigned int first, next, departed;
	uint64_t random;
	struct frame *frames;
};

static uint64_t mbit, delay_ns, loss_ppm, mtu, queue_max;

static void __attribute__((noreturn)) die(const char *what)
{
	fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Transports estimate by the speed that an interface claims: a TAP's is 10. */
static void set_link(const struct ifreq *tap)
{
	struct ethtool_cmd speed = { .cmd = ETHTOOL_SSET };
	struct ifreq ifr = *tap;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	speed.duplex = DUPLEX_FULL;
	ethtool_cmd_speed_set(&speed, (uint32_t)mbit);
	ifr.ifr_data = (void *)&speed;
	if (fd < 0 || ioctl(fd, SIOCETHTOOL, &ifr))
		die("speed of wire0");
	ifr.ifr_mtu = (int)mtu;
	if (ioctl(fd, SIOCSIFMTU, &ifr))
		die("MTU of wire0");
	close(fd);
}

static int open_end(const char *ns)
{
	struct ifreq ifr = { .ifr_name = "wire0",
			     .ifr_flags = IFF_TAP | IFF_NO_PI };
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/%s", ns);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		die(path);
	close(fd);
	fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &ifr))
		die("/dev/net/tun");
	set_link(&ifr);
	return fd;
}

static void init_way(struct way *w, int from, int to, uint64_t seed)
{
	uint8_t *bytes = malloc((size_t)SLOTS * FRAME_MAX);

	*w = (struct way){ .from = from, .to = to, .random = seed };
	w->frames = calloc(SLOTS, sizeof(*w->frames));
	if (!bytes || !w->frames)
		die("memory");
	for (unsigned int i = 0; i < SLOTS; i++)
		w->frames[i].bytes = bytes + (size_t)i * FRAME_MAX;
}

static int is_lost(struct way *w)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random % 1000000u < loss_ppm;
}

static void take_frames(struct way *w, uint64_t now)
{
	struct frame *f;
	unsigned int i;
	ssize_t len;

	for (i = 0; i < AT_ONCE && w->next - w->first < SLOTS; i++) {
		f = &w->frames[w->next % SLOTS];
		len = read(w->from, f->bytes, FRAME_MAX);
		if (len <= 0)
			return;
		if (w->queued + (size_t)len > queue_max || is_lost(w))
			continue;
		if (w->free_at < now)
			w->free_at = now;
		w->free_at += (uint64_t)len * 8000u / mbit;
		f->len = (size_t)len;
		f->departs = w->free_at;
		f->due = f->departs + delay_ns;
		w->queued += f->len;
		w->next++;
	}
}

/* Returns when to look again. */
static uint64_t give_frames(struct way *w, uint64_t now)
{
	const struct frame *f;

	for (; w->departed != w->next; w->departed++) {
		f = &w->frames[w->departed % SLOTS];
		if (f->departs > now)
			break;
		w->queued -= f->len;
	}
	for (; w->first != w->departed; w->first++) {
		f = &w->frames[w->first % SLOTS];
		if (f->due > now)
			break;
		/* a full interface has lost it */
		if (write(w->to, f->bytes, f->len) < 0 && errno != EAGAIN &&
		    errno != EIO)
			die("write");
	}
	return w->first != w->next ? w->frames[w->first % SLOTS].due
				   : UINT64_MAX;
}

static void carry(struct way ways[2])
{
	struct pollfd fds[2] = { { ways[0].from, POLLIN, 0 },
				 { ways[1].from, POLLIN, 0 } };
	uint64_t now, then, other;
	struct timespec t;

	for (;;) {
		now = now_ns();
		take_frames(&ways[0], now);
		take_frames(&ways[1], now);
		now = now_ns();
		then = give_frames(&ways[0], now);
		other = give_frames(&ways[1], now);
		then = other < then ? other : then;
		now = now_ns();
		then = then > now ? then - now : 0;
		t.tv_sec = then / 1000000000u > 60
				   ? 60
				   : (time_t)(then / 1000000000u);
		t.tv_nsec = (long)(then % 1000000000u);
		ppoll(fds, 2, &t, NULL);
	}
}

int main(int argc, char **argv)
{
	struct way ways[2];
	int a, b;

	if (argc != 7) {
		fprintf(stderr, "usage: wire A B MBIT DELAY_US LOSS_PPM MTU\n");
		return 2;
	}
	mbit = strtoull(argv[3], NULL, 0);
	delay_ns = strtoull(argv[4], NULL, 0) * 1000u;
	loss_ppm = strtoull(argv[5], NULL, 0);
	mtu = strtoull(argv[6], NULL, 0);
	/* and what is under way in a round trip */
	queue_max = QUEUE_LEAST + 2 * delay_ns * mbit / 8000u;
	if (!mbit || mtu + HEADER > FRAME_MAX) {
		fprintf(stderr, "wire: a rate of 0, or an MTU above %u\n",
			FRAME_MAX - HEADER);
		return 2;
	}
	prctl(PR_SET_TIMERSLACK, 1);
	a = open_end(argv[1]);
	b = open_end(argv[2]);
	init_way(&ways[0], a, b, 0x9e3779b97f4a7c15u);
	init_way(&ways[1], b, a, 0xbf58476d1ce4e5b9u);
	puts("ready");
	fflush(stdout);
	carry(ways);
}
