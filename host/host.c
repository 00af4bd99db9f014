/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/host.h"
#include "util/file.h"
#include "util/hash.h"
#include "util/log.h"
#include "util/parse.h"
#include "util/util.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71 /* asm-generic/socket.h, Linux 5.14 */
#endif

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

const char weft_host_unknown[] =
	"this host cannot be identified (" BOOT_ID " cannot be read)";

/* Random ids, used if the kernel tells none. */
static struct {
	uint64_t host, netns;
} unknown;
static uint64_t host_id;
static bool known;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_host_id(void)
{
	char boot[64];
	ssize_t n;

	/* without random numbers two hosts might get the same id */
	if (weft_random(&unknown, sizeof(unknown))) {
		unknown.host = (uintptr_t)&boot ^ (uint64_t)getpid() << 32;
		unknown.netns = ~unknown.host;
	}
	n = weft_file_read(BOOT_ID, boot, sizeof(boot));
	known = n > 0;
	host_id = known ? weft_hash_u64("weft host", boot, (size_t)n)
			: unknown.host;
	if (!known)
		weft_warn(
			"'%s' cannot be read (%s): which peers are on this host is not known, and none of those is reached; mount /proc in this container",
			BOOT_ID, n ? strerror((int)-n) : "it is empty");
}

uint64_t weft_host_id(void)
{
	pthread_once(&once, read_host_id);
	return host_id;
}

bool weft_host_known(void)
{
	pthread_once(&once, read_host_id);
	return known;
}

static uint64_t get_netns_cookie(void)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);
	const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return 0;
	if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len))
		cookie = 0;
	close(fd);
	return cookie;
}

struct netns {
	uint64_t host, cookie;
	char link[64];
};

/*
 * The cookie that @ns had when a descriptor was left to ask for it.  Another
 * thread may have had the lock at a fork: it is only tried.
 */
static void complete_cookie(struct netns *ns)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct netns last;

	if (pthread_mutex_trylock(&lock))
		return;
	if (ns->cookie)
		last = *ns;
	else if (!strcmp(last.link, ns->link))
		ns->cookie = last.cookie;
	pthread_mutex_unlock(&lock);
}

uint64_t weft_netns_id(void)
{
	struct netns id = { .host = weft_host_id() };
	ssize_t n;

	id.cookie = get_netns_cookie();
	/* a thread may have left the process's namespace */
	n = readlink("/proc/thread-self/ns/net", id.link, sizeof(id.link) - 1);
	if (n < 0)
		n = readlink("/proc/self/ns/net", id.link, sizeof(id.link) - 1);
	if (n > 0)
		complete_cookie(&id);
	if (n < 0 && !id.cookie)
		return unknown.netns;
	return weft_hash_u64("weft netns", &id, sizeof(id));
}

ssize_t weft_host_uid_map(char *text, size_t len)
{
	const int fd = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return errno == ENOENT && access("/proc/self/ns/user", F_OK)
			       ? 0
			       : -errno;
	n = read(fd, text, len);
	if (n <= 0)
		n = n ? -errno : -ENODATA;
	close(fd);
	return n;
}

/* Processors of a quota, rounded up; 0: none. */
static unsigned int parse_quota(const char *quota, const char *period)
{
	uint64_t q, p;

	if (weft_parse_u64(quota, 1, UINT32_MAX, &q) ||
	    weft_parse_u64(period, 1, UINT32_MAX, &p))
		return 0;
	return (unsigned int)((q + p - 1) / p);
}

static unsigned int min_known(unsigned int a, unsigned int b)
{
	return !a ? b : !b ? a : a < b ? a : b;
}

/* cgroup v2: "max 100000" or "150000 100000", at every level. */
static unsigned int read_quota_v2(char *path)
{
	char file[512], text[64], *end, *period;
	unsigned int cpus = 0;

	for (;;) {
		snprintf(file, sizeof(file), "/sys/fs/cgroup%s/cpu.max", path);
		if (weft_file_read(file, text, sizeof(text)) > 0) {
			period = strchr(text, ' ');
			if (period) {
				*period++ = '\0';
				cpus = min_known(cpus,
						 parse_quota(text, period));
			}
		}
		end = strrchr(path, '/');
		if (!end || !*path)
			return cpus;
		*end = '\0';
	}
}

static unsigned int read_quota_v1(const char *path)
{
	char file[512], quota[64], period[64];

	snprintf(file, sizeof(file), "/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us",
		 path);
	if (weft_file_read(file, quota, sizeof(quota)) <= 0)
		return 0;
	snprintf(file, sizeof(file), "/sys/fs/cgroup/cpu%s/cpu.cfs_period_us",
		 path);
	if (weft_file_read(file, period, sizeof(period)) <= 0)
		return 0;
	return parse_quota(quota, period);
}

/* Lines of /proc/self/cgroup: "0::/path", "4:cpu,cpuacct:/path". */
static unsigned int count_cgroup(void)
{
	unsigned int cpus = 0;
	char text[4096], *line, *save, *names, *path;

	if (weft_file_read("/proc/self/cgroup", text, sizeof(text)) <= 0)
		return 0;
	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		names = strchr(line, ':');
		path = names ? strchr(++names, ':') : NULL;
		if (!path)
			continue;
		*path++ = '\0';
		if (!*names)
			cpus = min_known(cpus, read_quota_v2(path));
		else if (!strcmp(names, "cpu") || !strncmp(names, "cpu,", 4))
			/* a container sees its group as the root */
			cpus = min_known(cpus, min_known(read_quota_v1(path),
							 read_quota_v1("")));
	}
	return cpus;
}

static unsigned int count_affinity(void)
{
	const size_t max = 1 << 16; /* above any kernel's NR_CPUS */
	cpu_set_t *set = CPU_ALLOC(max);
	const size_t size = CPU_ALLOC_SIZE(max);
	unsigned int n = 0;

	if (!set)
		return 1;
	if (!sched_getaffinity(0, size, set))
		n = (unsigned int)CPU_COUNT_S(size, set);
	CPU_FREE(set);
	return n ? n : 1;
}

unsigned int weft_host_cpus(void)
{
	return min_known(count_affinity(), count_cgroup());
}
