/* SPDX-License-Identifier: BSD-3-Clause */
#include "host/samehost.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "host/gpu.h"
#include "host/host.h"
#include "host/rundir.h"
#include "settings/settings.h"
#include "util/file.h"
#include "util/hash.h"
#include "util/parse.h"
#include "util/util.h"

/* Raise it with any change of which processes can be introduced. */
#define SCHEME	     2u
#define FIRST_NCCL   21900 /* allocates with cuMemCreate() */
#define FIRST_SHARED 23000 /* has NCCL_MULTI_RANK_GPU_ENABLE */
#define FIRST_DRIVER 525u  /* CUDA 12, which that NCCL needs */
/* Bytes; NCCL's shared files of a few ranks take less. */
#define FREE_MIN (32ull << 20)
/*
 * Per GPU if all traffic goes through these files: 9.2 MiB of buffers per
 * channel and peer in a ring or tree.
 */
#define FREE_HIDDEN (128ull << 20)

const char *weft_driver_file = "/proc/driver/nvidia/version";

__attribute__((format(printf, 2, 3))) static bool
set_refusal(struct weft_samehost *host, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(host->reason, sizeof(host->reason), fmt, args);
	va_end(args);
	return false;
}

/* ---- settings ------------------------------------------------------------ */

/* NCCL takes an empty value for none. */
static const char *read_env(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

static bool check_settings(int nccl, struct weft_samehost *host)
{
	const char *id = secure_getenv("NCCL_HOSTID");
	const char *cumem = read_env("NCCL_CUMEM_ENABLE");
	const char *shared = read_env("NCCL_MULTI_RANK_GPU_ENABLE");
	char namespace[64];

	if (weft_settings()->nccl_introduce == WEFT_OFF)
		return set_refusal(host, "WEFT_NCCL_INTRODUCE is off");
	if (id)
		return set_refusal(
			host,
			"NCCL_HOSTID is set to '%.64s', which weft does not change; unset it, and weft tells NCCL which processes share this host",
			id);
	if (cumem && weft_is_zero(cumem))
		return set_refusal(
			host,
			"NCCL_CUMEM_ENABLE is 0, and without it NCCL's GPU memory cannot leave a container; unset it");
	if (nccl && nccl < FIRST_NCCL && !cumem)
		return set_refusal(
			host,
			"NCCL %d.%d's GPU memory cannot leave a container; use 2.19 or newer",
			nccl / 10000, nccl / 100 % 100);
	host->gpus_shared = shared && !weft_is_zero(shared);
	if (host->gpus_shared && nccl && nccl < FIRST_SHARED)
		return set_refusal(
			host,
			"NCCL_MULTI_RANK_GPU_ENABLE is set, which NCCL %d.%d does not know; use 2.30 or newer, or unset it",
			nccl / 10000, nccl / 100 % 100);
	if (readlink("/proc/self/ns/pid", namespace, sizeof(namespace)) < 0)
		return set_refusal(
			host,
			"'/proc/self/ns/pid' cannot be read (%s), and without it NCCL takes ranks of equal process ids for one process; mount /proc",
			strerror(errno));
	if (!weft_host_known())
		return set_refusal(host, "%s; mount /proc", weft_host_unknown);
	return true;
}

/*
 * Refuse settings with which NCCL's own transports would fail: it cannot go
 * back to the network.
 */
static bool check_transports(struct weft_samehost *host)
{
	const char *p2p = read_env("NCCL_P2P_DISABLE");
	const char *cumem = read_env("NCCL_CUMEM_HOST_ENABLE");
	const char *shm = read_env("NCCL_SHM_DISABLE");

	if (!host->hidden && p2p && !weft_is_zero(p2p))
		return set_refusal(
			host,
			"NCCL_P2P_DISABLE is set; unset it for NVLink between containers");
	if (!host->hidden)
		return true;
	if (p2p && strcmp(p2p, "1"))
		return set_refusal(
			host,
			"NCCL_P2P_DISABLE is '%.32s', and where other containers' GPUs are hidden it has to be 1; unset it",
			p2p);
	if (cumem && !weft_is_zero(cumem))
		return set_refusal(
			host,
			"NCCL_CUMEM_HOST_ENABLE is '%.32s', and where other containers' GPUs are hidden it has to be 0; unset it",
			cumem);
	if (shm && !weft_is_zero(shm))
		return set_refusal(
			host,
			"NCCL_SHM_DISABLE is set, and where other containers' GPUs are hidden shared memory is all that is left; unset it");
	return true;
}

/* ---- GPUs --------------------------------------------------------------- */

/*
 * "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  ...", or of the
 * open modules "... Open Kernel Module for x86_64  580.159.04 ...": the first
 * word that begins with a digit.  0: unknown.
 */
static unsigned int read_driver_version(void)
{
	char line[256], *word, *save;
	unsigned int major = 0;

	weft_file_read(weft_driver_file, line, sizeof(line));
	line[strcspn(line, "\n")] = '\0';
	word = strtok_r(line, " \t", &save);
	while (word && !isdigit((unsigned char)*word))
		word = strtok_r(NULL, " \t", &save);
	while (word && isdigit((unsigned char)*word) && major < 100000)
		major = major * 10 + (unsigned int)(*word++ - '0');
	return major;
}

static bool check_gpus(const struct weft_gpu_nodes *set,
		       struct weft_samehost *host)
{
	const unsigned int driver = read_driver_version();
	const unsigned int all = weft_gpus_on_pci();
	const char *folder;

	host->gpus = set->n;
	host->hidden = set->n == 1 && all > 1;
	host->gpu = set->n ? set->dev[set->n - 1] : 0;
	if (!set->n)
		return set_refusal(
			host,
			"no GPU's device node opens here (%s/nvidia0, ...)",
			weft_dev_root);
	/*
	 * There is no peer to introduce to, and two containers that take turns
	 * on one GPU would be one host with a GPU twice, which NCCL refuses
	 * ("Duplicate GPU detected") unless a setting allows it.
	 */
	if (set->n == 1 && all <= 1 && !host->gpus_shared)
		return set_refusal(
			host,
			"this host has one GPU; for several ranks on it use NCCL 2.30 or newer and NCCL_MULTI_RANK_GPU_ENABLE=1");
	if (driver && driver < FIRST_DRIVER)
		return set_refusal(
			host,
			"NVIDIA's driver is version %u; %u or newer is needed",
			driver, FIRST_DRIVER);
	if (weft_gpus_divided())
		return set_refusal(
			host,
			"a GPU here is divided into instances (MIG), whose memory does not leave a container");
	if (weft_gpu_mps(&folder))
		return set_refusal(
			host,
			"an MPS daemon answers in '%.100s'; stop it, or set CUDA_MPS_PIPE_DIRECTORY to an empty folder",
			folder);
	return true;
}

/* ---- the folder --------------------------------------------------------- */

/* Try it: SELinux, a full disk or seccomp may forbid it. */
static int try_socket(const char *folder)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	uint64_t name;
	int fd, err;

	err = weft_random(&name, sizeof(name));
	if (err)
		return err;
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/n-%016" PRIx64, folder,
		 name);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)))
		err = -errno;
	else if (sendto(fd, "", 1, MSG_DONTWAIT, (struct sockaddr *)&sa,
			sizeof(sa)) != 1)
		err = -errno;
	close(fd);
	unlink(sa.sun_path);
	return err;
}

/*
 * Try what is done with NCCL's shared memory: weft calls flock(), to show other
 * processes that a file is in use, and NCCL calls fallocate(), which fails the
 * communicator if the file system does not support it (ncclOsShmOpen()).
 */
static int try_file(const char *folder, const char **what)
{
	char path[WEFT_SAMEHOST_FOLDER + 16];
	int fd, err = 0;

	*what = "open()";
	snprintf(path, sizeof(path), "%s/nccl-XXXXXX", folder);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_SH | LOCK_NB) && errno != EWOULDBLOCK) {
		*what = "flock()";
		err = -errno;
	}
	while (!err && fallocate(fd, 0, 0, 4096)) {
		*what = "fallocate()";
		err = errno == EINTR ? 0 : -errno;
	}
	unlink(path);
	close(fd);
	return err;
}

static bool check_folder(const char *folder, struct weft_samehost *host)
{
	struct weft_setting_info named;
	const uint64_t least =
		host->hidden ? FREE_HIDDEN * weft_gpus_on_pci() : FREE_MIN;
	struct statvfs fs;
	struct statfs type;
	const char *what;
	int err;

	weft_settings_named("WEFT_RUN_DIR", &named);
	if (folder[0] != '/')
		return set_refusal(host,
				   "%s ('%.100s') is not an absolute path",
				   weft_setting_variable(&named), named.value);
	if (strlen(folder) >= sizeof(host->folder))
		return set_refusal(
			host,
			"'%.150s' is too long a name for sockets; set WEFT_RUN_DIR to one of at most %zu characters",
			folder,
			sizeof(host->folder) - sizeof("/weft-4294967295.7"));
	if (statvfs(folder, &fs))
		return set_refusal(host, "'%s' cannot be examined: %s", folder,
				   strerror(errno));
	if (fs.f_blocks && (uint64_t)fs.f_bavail * fs.f_frsize < least)
		return set_refusal(
			host,
			"'%s' has %llu MiB free, and NCCL's shared memory would go there; make it %llu or larger",
			folder,
			(unsigned long long)((uint64_t)fs.f_bavail *
						     fs.f_frsize >>
					     20),
			(unsigned long long)(least >> 20));
	/* the driver cannot register a file on a disk */
	if (host->hidden &&
	    (statfs(folder, &type) || type.f_type != TMPFS_MAGIC))
		return set_refusal(
			host,
			"'%s' is not on a tmpfs, and where other containers' GPUs are hidden all goes through files there; mount one",
			folder);
	err = try_socket(folder);
	if (err)
		return set_refusal(
			host,
			"no socket works in '%s' (%s); see whether it is mounted with write access, and whether SELinux, AppArmor or seccomp forbids sockets there",
			folder, strerror(-err));
	err = try_file(folder, &what);
	if (err)
		return set_refusal(
			host,
			"%s does not work in '%s' (%s); see what file system it is, and whether seccomp forbids it",
			what, folder, strerror(-err));
	return true;
}

static bool open_shared_folder(struct weft_rundir *dir,
			       struct weft_samehost *host)
{
	const int err = weft_rundir_open(dir);

	if (err == -EBADMSG)
		return set_refusal(
			host, "'%s/cookie' is not one of weft's; remove it",
			dir->path);
	if (err == -EPERM)
		return set_refusal(
			host,
			"'%s' is not a folder of uid %u alone (mode 0700); remove it, or set WEFT_RUN_DIR",
			dir->path, geteuid());
	if (err)
		return set_refusal(
			host,
			"the folder '%s' cannot be used (%s); mount one into all containers of the job, with write access for uid %u, at /run/weft or where WEFT_RUN_DIR says",
			dir->path, strerror(-err), geteuid());
	if (check_folder(dir->path, host))
		return true;
	weft_rundir_close(dir);
	return false;
}

/* ---- the id ------------------------------------------------------------- */

/* A transport fails where its two sides have other values of these. */
static void hash_settings(const struct weft_samehost *host, uint8_t digest[16])
{
	static const struct {
		const char *name;
		bool zero_is_default;
	} rows[] = {
		{ "NCCL_P2P_DISABLE", true },
		{ "NCCL_P2P_LEVEL", false },
		{ "NCCL_CUMEM_ENABLE", false },
		{ "NCCL_CUMEM_HOST_ENABLE", false },
		{ "NCCL_SHM_DISABLE", true },
		{ "NCCL_SHM_LOCALITY", false },
		{ "NCCL_MULTI_RANK_GPU_ENABLE", true },
	};
	struct weft_bytes parts[ARRAY_SIZE(rows)];
	const char *value;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		value = weft_samehost_env(host, rows[i].name);
		if (!value)
			value = read_env(rows[i].name);
		if (!value || (rows[i].zero_is_default && weft_is_zero(value)))
			value = "";
		parts[i] = (struct weft_bytes){ value, strlen(value) + 1 };
	}
	weft_hash(digest, 16, NULL, 0, parts, ARRAY_SIZE(parts));
}

static bool make_id(const struct weft_rundir *dir,
		    const struct weft_gpu_nodes *set,
		    struct weft_samehost *host)
{
	static const char label[] = "weft samehost";
	uint8_t settings[16];
	char mapping[512];
	const ssize_t mapped = weft_host_uid_map(mapping, sizeof(mapping));
	/* what is of variable length comes last; the secret is the key */
	const uint64_t fixed[] = {
		SCHEME,	   weft_host_id(), dir->id,
		geteuid(), set->n,	   host->hidden,
	};
	const struct weft_bytes parts[] = {
		{ label, sizeof(label) },
		{ fixed, sizeof(fixed) },
		{ set->dev, host->hidden ? 0 : sizeof(set->dev) },
		{ settings, sizeof(settings) },
		{ mapping, mapped > 0 ? (size_t)mapped : 0 },
	};
	const uint8_t *secret;
	uint8_t key[32], id[16];
	struct weft_bytes whole = { NULL, 0 };
	unsigned int i;
	size_t at;

	if (mapped < 0)
		return set_refusal(
			host,
			"'/proc/self/uid_map' cannot be read (%s), and without it equal user ids may be different users; mount /proc",
			strerror((int)-mapped));
	if (weft_settings_secret(&secret, &whole.len))
		return set_refusal(
			host,
			"the file that WEFT_SECRET_FILE names cannot be used");
	hash_settings(host, settings);
	whole.data = secret;
	weft_hash(key, sizeof(key), NULL, 0, &whole, 1);
	weft_hash(id, sizeof(id), key, sizeof(key), parts, ARRAY_SIZE(parts));
	weft_wipe(key, sizeof(key));
	at = (size_t)snprintf(host->id, sizeof(host->id), "weft-");
	for (i = 0; i < sizeof(id); i++)
		at += (size_t)snprintf(host->id + at, sizeof(host->id) - at,
				       "%02x", id[i]);
	return true;
}

const char *weft_samehost_env(const struct weft_samehost *host,
			      const char *name)
{
	if (!strcmp(name, "NCCL_HOSTID"))
		return host->id;
	/* the multicast of a GPU takes one rank of it */
	if (host->gpus_shared && !strcmp(name, "NCCL_NVLS_ENABLE"))
		return "0";
	if (host->hidden && !strcmp(name, "NCCL_P2P_DISABLE"))
		return "1";
	/* such memory belongs to a GPU that the peer lacks */
	if (host->hidden && !strcmp(name, "NCCL_CUMEM_HOST_ENABLE"))
		return "0";
	return NULL;
}

bool weft_samehost_claim(struct weft_samehost *host)
{
	char path[WEFT_SAMEHOST_FOLDER + 8];
	struct flock lock = {
		.l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = (off_t)host->gpu,
		.l_len = 1,
	};
	int fd;

	if (!host->hidden || host->gpus_shared)
		return true;
	snprintf(path, sizeof(path), "%s/gpus", host->folder);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return set_refusal(host, "'%s' cannot be opened: %s", path,
				   strerror(errno));
	/* the lock is this process's, not its children's; keep it open */
	if (!fcntl(fd, F_SETLK, &lock))
		return true;
	close(fd);
	return set_refusal(
		host,
		"another introduced process uses this GPU, which NCCL allows from 2.30 on with NCCL_MULTI_RANK_GPU_ENABLE=1");
}

void weft_samehost_find(int nccl, struct weft_samehost *host)
{
	struct weft_rundir dir;
	struct weft_gpu_nodes set;

	memset(host, 0, sizeof(*host));
	if (!check_settings(nccl, host))
		return;
	weft_gpu_nodes_find(&set);
	if (!check_gpus(&set, host) || !check_transports(host) ||
	    !open_shared_folder(&dir, host))
		return;
	host->introduced = make_id(&dir, &set, host);
	snprintf(host->folder, sizeof(host->folder), "%s", dir.path);
	weft_rundir_close(&dir);
}
