/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "nccl_net/abi/env.h"
#include "nccl_net/abi/net.h"
#include "tests/nccl/introduce/nccl.h"

#define EXPORT __attribute__((visibility("default")))
#define SHM    "/dev/shm/nccl-"

#ifdef OLD_STAT
/* What stat() is in a program that was built with a glibc before 2.33. */
extern int old_stat(int version, const char *path, struct stat *st);
__asm__(".symver old_stat,__xstat@GLIBC_2.2.5");
#define stat(path, st) old_stat(1, path, st)
#endif

/* Releases since 2.26 hold these functions' addresses, too. */
#ifdef ADDRESSES
#define CALL(f)                                 \
	({                                      \
		__typeof__(f) *volatile by = f; \
		by;                             \
	})
#else
#define CALL(f) f
#endif

EXPORT int ncclGetVersion(int *version);
EXPORT int ncclGetVersion(int *version)
{
	const char *told = getenv("TEST_VERSION");

	*version = told ? atoi(told) : 22809;
	return 0;
}

static void logger(enum nccl_log_level level, unsigned long subsys,
		   const char *file, int line, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "NCCL %s %s\n",
		level == NCCL_LOG_WARN ? "WARN" : "INFO", text);
}

/* --- settings and plugins ------------------------------------------------- */

static const char *(*ask_plugin)(const char *name);

static const char *setting(const char *name)
{
	return ask_plugin ? ask_plugin(name) : getenv(name);
}

static void ask(const char *name)
{
	const char *value = setting(name);

	if (value && *value)
		logger(NCCL_LOG_INFO, 0, "", 0, "%s set by environment to %s",
		       name, value);
}

static void *open_plugin(const char *path)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!handle)
		fprintf(stderr, "NCCL: %s\n", dlerror());
	return handle;
}

/* Once; its name is the one setting that it is not asked for. */
static int load_env(void)
{
	const char *path = getenv("NCCL_ENV_PLUGIN");
	const struct nccl_env_v1 *v1;
	const struct nccl_env_v2 *v2;
	void *handle;

	if (ask_plugin || !path)
		return 0;
	handle = open_plugin(path);
	if (!handle)
		return -1;
	v2 = dlsym(handle, "ncclEnvPlugin_v2");
	v1 = dlsym(handle, "ncclEnvPlugin_v1");
	if (v2 && !v2->init(2, 30, 7, "", logger))
		ask_plugin = v2->get_env;
	else if (v1 && !v1->init(2, 28, 9, ""))
		ask_plugin = v1->get_env;
	return ask_plugin ? 0 : -1;
}

static struct {
	void *handle, *ctx;
	enum nccl_result (*finalize)(void *ctx);
} net;

static int load_net(void)
{
	const char *path = setting("NCCL_NET_PLUGIN");
	const char *api = getenv("TEST_API");
	struct nccl_config_v10 config = { -1 };
	const struct nccl_net_v11 *v11;
	const struct nccl_net_v10 *v10;
	const struct nccl_net_v6 *v6;
	enum nccl_result r;
	char name[32];
	int n = 0;
	void *sym;

	if (!path)
		return 0;
	net.handle = open_plugin(path);
	if (!net.handle)
		return -1;
	api = api ? api : "11";
	snprintf(name, sizeof(name), "ncclNetPlugin_v%s", api);
	sym = dlsym(net.handle, name);
	v6 = sym;
	v10 = sym;
	v11 = sym;
	net.finalize = NULL;
	if (!sym) {
		r = NCCL_INTERNAL_ERROR;
	} else if (atoi(api) >= 11) {
		r = v11->init(&net.ctx, 1, &config, logger, NULL);
		r = r ? r : v11->devices(&n);
		net.finalize = v11->finalize;
	} else if (atoi(api) == 10) {
		r = v10->init(logger, NULL);
		r = r ? r : v10->devices(&n);
	} else {
		r = v6->init(logger);
		r = r ? r : v6->devices(&n);
	}
	if (r || n <= 0) {
		/* the next network, without telling the caller */
		dlclose(net.handle);
		net.handle = NULL;
	}
	return 0;
}

/*
 * Its first questions for a communicator: with the CUDA driver, on all ranks
 * that have an id already, and the one of all releases.
 */
static int load(void)
{
	if (load_env())
		return -1;
	ask("NCCL_CUMEM_HOST_ENABLE");
	setting("NCCL_COMM_ID");
	return load_net();
}

static void unload(void)
{
	if (!net.handle)
		return;
	if (net.finalize)
		net.finalize(net.ctx);
	dlclose(net.handle);
	net.handle = NULL;
}

/* --- who is on this host -------------------------------------------------- */

static uint64_t hash_of(const char *text)
{
	uint64_t h = 14695981039346656037u;

	while (*text)
		h = (h ^ (unsigned char)*text++) * 1099511628211u;
	return h;
}

/* Of the whole process: what was true with the first communicator stays. */
static uint64_t host_hash(void)
{
	static uint64_t hash;
	char text[1024] = "";
	const char *id;
	FILE *f;

	if (hash)
		return hash;
	id = setting("NCCL_HOSTID");
	if (id) {
		logger(NCCL_LOG_INFO, 0, "", 0,
		       "NCCL_HOSTID set by environment to %s", id);
		snprintf(text, sizeof(text), "%s", id);
	} else {
		gethostname(text, sizeof(text) / 2);
		f = fopen("/proc/sys/kernel/random/boot_id", "r");
		if (f) {
			if (!fgets(text + strlen(text), 64, f))
				text[0] = '\0';
			fclose(f);
		}
	}
	hash = hash_of(text);
	return hash;
}

static int place(struct nccl_place *p)
{
	struct stat st;

	p->host = host_hash();
	ask("NCCL_P2P_DISABLE");
	ask("NCCL_NVLS_ENABLE");
	if (stat("/dev/shm", &st))
		return -1;
	p->shm_dev = st.st_dev;
	return 0;
}

/* --- memory of a name ----------------------------------------------------- */

static void *map(int fd, size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

static void *shm_make(char *suffix, size_t size)
{
	char path[] = SHM "XXXXXX";
	int fd = mkstemp(path);

	if (fd < 0)
		return NULL;
	memcpy(suffix, path + sizeof(SHM) - 1, NCCL_SUFFIX + 1);
	if (fallocate(fd, 0, 0, (off_t)size)) {
		close(fd);
		unlink(path);
		return NULL;
	}
	return map(fd, size);
}

static void *shm_open_(const char *suffix, size_t size)
{
	char path[sizeof(SHM) + NCCL_SUFFIX];
	int fd;

	snprintf(path, sizeof(path), SHM "%s", suffix);
	fd = open(path, O_RDWR, S_IRUSR | S_IWUSR);
	return fd < 0 ? NULL : map(fd, size);
}

static int shm_unlink_(const char *suffix)
{
	char path[sizeof(SHM) + NCCL_SUFFIX];

	snprintf(path, sizeof(path), SHM "%s", suffix);
	return unlink(path);
}

/* --- descriptors ---------------------------------------------------------- */

static bool abstract(void)
{
	const char *value = setting("NCCL_IPC_USE_ABSTRACT_SOCKET");

	return !value || strcmp(value, "0");
}

static struct sockaddr_un name_of(int rank, uint64_t hash)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };

	snprintf(sun.sun_path, sizeof(sun.sun_path), "/tmp/nccl-socket-%d-%lx",
		 rank, hash);
	return sun;
}

static int ipc_open(int rank, uint64_t hash)
{
	struct sockaddr_un sun = name_of(rank, hash);
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

	if (fd < 0)
		return -1;
	if (abstract())
		sun.sun_path[0] = '\0';
	else
		unlink(sun.sun_path);
	if (CALL(bind)(fd, (struct sockaddr *)&sun, sizeof(sun))) {
		close(fd);
		return -1;
	}
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	return fd;
}

static int ipc_send(int sock, int fd, int rank, uint64_t hash)
{
	struct sockaddr_un sun = name_of(rank, hash);
	char control[CMSG_SPACE(sizeof(int))] = "", byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_name = &sun,
		.msg_namelen = sizeof(sun),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_len = CMSG_LEN(sizeof(int));
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	if (abstract())
		sun.sun_path[0] = '\0';
	while (CALL(sendmsg)(sock, &msg, 0) < 0)
		if (errno != EAGAIN && errno != EINTR)
			return -1;
	return 0;
}

static int ipc_recv(int sock)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c;
	int fd;

	while (recvmsg(sock, &msg, 0) <= 0)
		if (errno != EAGAIN && errno != EINTR)
			return -1;
	c = CMSG_FIRSTHDR(&msg);
	if (!c || c->cmsg_type != SCM_RIGHTS)
		return -1;
	memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

static void ipc_close(int sock, int rank, uint64_t hash)
{
	struct sockaddr_un sun = name_of(rank, hash);

	if (!abstract())
		unlink(sun.sun_path);
	close(sock);
}

/* --- what is not NCCL's --------------------------------------------------- */

/* Each of these files is looked for where it was put, by calls around weft. */
static int others(void)
{
	struct sockaddr_un back, sun = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(back);
	char path[] = "/dev/shm/other-XXXXXX", more[64];
	struct stat st, again;
	int fd, dir;

	dir = openat(AT_FDCWD, "/dev/shm", O_PATH | O_DIRECTORY);
	fd = mkstemp(path);
	if (dir < 0 || fd < 0)
		return __LINE__;
	/* of this process alone: ranks may share /dev/shm and the network */
	snprintf(more, sizeof(more), "%s.more", path);
	snprintf(sun.sun_path + 1, sizeof(sun.sun_path) - 1,
		 "/tmp/other-socket-0-%s", path + sizeof("/dev/shm/") - 1);
	if (faccessat(dir, path + sizeof("/dev/shm/") - 1, F_OK, 0))
		return __LINE__;
	close(fd);
	fd = open(path, O_RDWR);
	if (fd < 0 || stat(path, &st) || fstat(fd, &again) ||
	    st.st_ino != again.st_ino || st.st_dev != again.st_dev)
		return __LINE__;
	close(fd);
	if (unlink(path) ||
	    !faccessat(dir, path + sizeof("/dev/shm/") - 1, F_OK, 0))
		return __LINE__;
	/* the folder's name with more or less than NCCL says */
	if (stat("/dev/shm/", &st) || fstat(dir, &again) ||
	    st.st_dev != again.st_dev || st.st_ino != again.st_ino)
		return __LINE__;
	if (open("/dev/shm/nccl", O_RDONLY) >= 0 || errno != ENOENT ||
	    unlink("/dev/shm/nccl") != -1 || errno != ENOENT)
		return __LINE__;
	/* mode and errno as they were */
	fd = open(more, O_CREAT | O_EXCL | O_RDWR, 0640);
	if (fd < 0 || fstat(fd, &st) || (st.st_mode & 0777) != 0640 ||
	    open(more, O_CREAT | O_EXCL, 0640) >= 0 || errno != EEXIST ||
	    unlink(more))
		return __LINE__;
	close(fd);
	fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sun, sizeof(sun)) ||
	    getsockname(fd, (struct sockaddr *)&back, &len) ||
	    len != sizeof(sun) || memcmp(&back, &sun, len))
		return __LINE__;
	close(fd);
	if (bind(-1, (struct sockaddr *)&sun, sizeof(sun)) != -1 ||
	    errno != EBADF || bind(-1, NULL, 0) != -1 || errno != EBADF)
		return __LINE__;
	close(dir);
	return 0;
}

extern const struct nccl_calls nccl_calls;
EXPORT const struct nccl_calls nccl_calls = {
	.load = load,
	.unload = unload,
	.place = place,
	.shm_make = shm_make,
	.shm_open = shm_open_,
	.shm_unlink = shm_unlink_,
	.ipc_open = ipc_open,
	.ipc_send = ipc_send,
	.ipc_recv = ipc_recv,
	.ipc_close = ipc_close,
	.others = others,
};
