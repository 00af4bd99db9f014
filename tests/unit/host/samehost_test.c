/* SPDX-License-Identifier: BSD-3-Clause */
/* Which processes are one host to NCCL, and the reasons of the others. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/gpu.h"
#include "host/pci.h"
#include "host/samehost.h"
#include "settings/settings.h"
#include "tests/lib/folder.h"
#include "tests/lib/proc.h"
#include "tests/lib/quiet.h"

static struct weft_samehost host;

/* What is only opened needs not be a GPU. */
static void gpu(const char *name, const char *device)
{
	char path[64];

	snprintf(path, sizeof(path), "dev/%s", name);
	unlink(in(path));
	if (device)
		cr_assert(zero(int, symlink(device, in(path))));
}

static void on_pci(const char *name)
{
	shell("cd sys/bus/pci/devices && mkdir %s && cd %s && "
	      "echo 0x10de >vendor && echo 0x030200 >class",
	      name, name);
}

static void begin(void)
{
	static char dev[160], sys[160], driver[160];

	log_quiet();
	clearenv();
	folder_begin();
	shell("umask 022; mkdir -p dev run sys/bus/pci/devices");
	on_pci("0000:1a:00.0");
	on_pci("0000:1b:00.0");
	gpu("nvidia0", "/dev/null");
	gpu("nvidia1", "/dev/zero");
	snprintf(dev, sizeof(dev), "%s", in("dev"));
	snprintf(sys, sizeof(sys), "%s", in("sys"));
	snprintf(driver, sizeof(driver), "%s", in("version"));
	weft_dev_root = dev;
	weft_driver_file = driver;
	weft_sysfs_root = sys;
	setenv("WEFT_RUN_DIR", in("run"), 1);
	setenv("WEFT_LIBNVML", "/nonexistent", 1);
	setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent", 1);
}

TestSuite(samehost, .init = begin, .fini = folder_end, .timeout = 30);

static const char *find(int nccl)
{
	weft_settings_reset();
	weft_samehost_find(nccl, &host);
	return host.id;
}

static void introduced(void)
{
	find(0);
	cr_assert(host.introduced, "%s", host.reason);
}

static void declined_for(int nccl, const char *why)
{
	find(nccl);
	cr_expect(not(host.introduced));
	cr_expect(strstr(host.reason, why) != NULL, "'%s'", host.reason);
	cr_expect(zero(str, host.id));
	cr_expect(eq(ptr, strchr(host.reason, '\n'), NULL));
}

static void declined(const char *why)
{
	declined_for(0, why);
}

struct setting {
	const char *name, *value, *why; /* NULL: it does not matter */
};

static void try_settings(const struct setting *s, size_t n)
{
	for (; n--; s++) {
		setenv(s->name, s->value, 1);
		if (s->why)
			declined(s->why);
		else
			introduced();
		unsetenv(s->name);
	}
}

static bool answers(const char *name, const char *value)
{
	const char *answer = weft_samehost_env(&host, name);

	return answer ? value && !strcmp(answer, value) : !value;
}

/* Is it another host now? */
static bool another(void)
{
	char before[WEFT_SAMEHOST_ID];

	memcpy(before, host.id, sizeof(before));
	introduced();
	return strcmp(before, host.id);
}

static const char *own(const char *name)
{
	char path[96];

	snprintf(path, sizeof(path), "run/weft-%u%s%s", geteuid(),
		 *name ? "/" : "", name);
	return in(path);
}

Test(samehost, equal_surroundings_give_equal_ids)
{
	introduced();
	cr_expect(eq(int, strncmp(host.id, "weft-", 5), 0));
	cr_expect(eq(sz, strlen(host.id), 37));
	cr_expect(eq(str, host.folder, (char *)own("")));
	cr_expect(eq(uint, host.gpus, 2));
	cr_expect(not(another()));
}

Test(samehost, a_driver_before_525_is_too_old)
{
	static const char *const modules[] = {
		"x86_64 Kernel Module ", "Open Kernel Module for x86_64 "
	};
	char line[160];
	size_t i;

	for (i = 0; i < 4; i++) {
		snprintf(line, sizeof(line),
			 "NVRM version: NVIDIA UNIX %s %s\n", modules[i % 2],
			 i < 2 ? "580.159.04  Release Build  (root@host)"
			       : "470.256.02  Thu May  2 14:37:44 UTC 2024");
		write_file("version", line);
		if (i < 2)
			introduced();
		else
			declined("version 470");
	}
	/* masked: NCCL will see */
	write_file("version", "");
	introduced();
}

Test(samehost, renamed_nodes_keep_the_id)
{
	introduced();
	gpu("nvidia0", "/dev/zero");
	gpu("nvidia1", "/dev/null");
	cr_expect(not(another()));
	gpu("nvidia1", NULL);
	gpu("nvidia7", "/dev/null");
	cr_expect(not(another()));
}

Test(samehost, other_device_nodes_do_not_count)
{
	introduced();
	gpu("nvidiactl", "/dev/full");
	gpu("nvidia-uvm", "/dev/full");
	gpu("nvidia2", "/nonexistent");
	gpu("nvidia3", folder);
	write_file("dev/nvidia4", "");
	cr_expect(not(another()));
	cr_expect(eq(uint, host.gpus, 2));
}

/* As where a cgroup refuses what the folder shows. */
Test(samehost, unopenable_node_does_not_count)
{
	introduced();
	/* NVIDIA's number, of more GPUs than a host has */
	if (mknod(in("dev/nvidia2"), S_IFCHR | 0666, makedev(195, 77)))
		cr_skip_test("no device node can be made here: %s",
			     strerror(errno));
	cr_expect(not(another()));
	cr_expect(eq(uint, host.gpus, 2));
}

Test(samehost, id_depends_on_the_gpus)
{
	introduced();
	gpu("nvidia1", "/dev/full");
	cr_expect(another());
	gpu("nvidia2", "/dev/zero");
	cr_expect(another());
}

Test(samehost, id_depends_on_the_secret)
{
	introduced();
	write_file("secret", "0123456789abcdef0");
	chmod(in("secret"), 0600);
	setenv("WEFT_SECRET_FILE", in("secret"), 1);
	cr_expect(another());
	write_file("secret", "0123456789abcdef1");
	cr_expect(another());
	cr_expect(not(another()));
	chmod(in("secret"), 0644);
	declined("WEFT_SECRET_FILE");
}

Test(samehost, id_depends_on_the_folder)
{
	char cookie[192];

	introduced();
	mkdir(in("other"), 0755);
	setenv("WEFT_RUN_DIR", in("other"), 1);
	cr_expect(another());
	snprintf(cookie, sizeof(cookie), "%s/cookie", host.folder);
	unlink(cookie);
	cr_expect(another());
}

Test(samehost, no_node_is_refused)
{
	gpu("nvidia0", NULL);
	gpu("nvidia1", NULL);
	declined("no GPU's device node opens here");
}

/* A folder on a tmpfs, and one GPU of two. */
static void hide(const char *hidden_gpu)
{
	static char shm[] = "/dev/shm/weft-samehost-XXXXXX";
	struct statfs fs;

	if (statfs("/dev/shm", &fs) || fs.f_type != TMPFS_MAGIC ||
	    fs.f_bavail * (uint64_t)fs.f_bsize < 512u << 20)
		cr_skip_test("/dev/shm is no tmpfs with room");
	cr_assert(mkdtemp(shm) != NULL);
	setenv("WEFT_RUN_DIR", shm, 1);
	gpu(hidden_gpu, NULL);
}

static void unhide(void)
{
	shell("rm -rf %s", getenv("WEFT_RUN_DIR"));
}

Test(samehost, hidden_gpus_have_an_id_in_common)
{
	introduced();
	cr_expect(answers("NCCL_P2P_DISABLE", NULL));
	cr_expect(answers("NCCL_CUMEM_HOST_ENABLE", NULL));
	hide("nvidia1");
	introduced();
	cr_expect(host.hidden);
	cr_expect(answers("NCCL_P2P_DISABLE", "1"));
	cr_expect(answers("NCCL_CUMEM_HOST_ENABLE", "0"));
	cr_expect(answers("NCCL_NVLS_ENABLE", NULL));
	gpu("nvidia0", "/dev/full");
	cr_expect(not(another()), "another GPU");
	setenv("NCCL_P2P_DISABLE", "1", 1);
	setenv("NCCL_CUMEM_HOST_ENABLE", "0", 1);
	cr_expect(not(another()), "as the user has it");
	setenv("NCCL_SHM_DISABLE", "0", 1);
	cr_expect(not(another()), "the default");
	setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
	cr_expect(another());
	cr_expect(answers("NCCL_NVLS_ENABLE", "0"));
	unhide();
}

Test(samehost, id_depends_on_the_settings_of_transports)
{
	static const char *const names[] = {
		"NCCL_P2P_LEVEL",	  "NCCL_CUMEM_ENABLE",
		"NCCL_CUMEM_HOST_ENABLE", "NCCL_SHM_DISABLE",
		"NCCL_SHM_LOCALITY",
	};
	size_t i;

	introduced();
	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		setenv(names[i], "1", 1);
		cr_expect(another(), "%s", names[i]);
		setenv(names[i], "", 1);
		cr_expect(another(), "%s", names[i]);
	}
}

Test(samehost, hidden_gpus_are_refused_where_nccl_would_fail)
{
	static const struct setting rows[] = {
		{ "NCCL_P2P_DISABLE", "0", "NCCL_P2P_DISABLE is '0'" },
		{ "NCCL_P2P_DISABLE", "2", "NCCL_P2P_DISABLE is '2'" },
		{ "NCCL_CUMEM_HOST_ENABLE", "1", "CUMEM_HOST_ENABLE is '1'" },
		{ "NCCL_SHM_DISABLE", "1", "NCCL_SHM_DISABLE is set" },
	};

	hide("nvidia0");
	try_settings(rows, sizeof(rows) / sizeof(*rows));
	introduced();
	unhide();
}

/* By two containers, neither of which sees the other. */
Test(samehost, hidden_gpu_is_claimed_once)
{
	int status;
	pid_t pid;

	hide("nvidia1");
	introduced();
	cr_assert(weft_samehost_claim(&host), "%s", host.reason);
	pid = fork();
	if (!pid) {
		if (weft_samehost_claim(&host) ||
		    !strstr(host.reason, "uses this GPU"))
			_exit(1);
		gpu("nvidia0", "/dev/full");
		find(0);
		_exit(host.introduced && weft_samehost_claim(&host) ? 0 : 2);
	}
	cr_assert(eq(int, waitpid(pid, &status, 0), pid));
	cr_expect(zero(int, status));
	unhide();
}

static void leave_one_gpu(void)
{
	gpu("nvidia1", NULL);
	cr_assert(zero(int,
		       unlink(in("sys/bus/pci/devices/0000:1b:00.0/vendor"))));
}

Test(samehost, only_gpu_of_a_host_is_refused)
{
	leave_one_gpu();
	declined("this host has one GPU");
	declined("NCCL_MULTI_RANK_GPU_ENABLE=1");
	setenv("NCCL_MULTI_RANK_GPU_ENABLE", "0", 1);
	declined("this host has one GPU");
}

Test(samehost, ranks_may_share_a_gpu)
{
	introduced();
	cr_expect(answers("NCCL_NVLS_ENABLE", NULL));
	setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
	cr_expect(another(), "one who may and one who may not");
	leave_one_gpu();
	cr_expect(another());
	cr_expect(eq(uint, host.gpus, 1));
	cr_expect(answers("NCCL_NVLS_ENABLE", "0"));
	cr_expect(answers("NCCL_HOSTID", host.id));
	cr_expect(answers("NCCL_NVLS", NULL));
	find(23000);
	cr_expect(host.introduced, "%s", host.reason);
	declined_for(22907, "NCCL_MULTI_RANK_GPU_ENABLE is set, which "
			    "NCCL 2.29 does not know");
}

Test(samehost, user_settings_refuse_first)
{
	static const struct setting rows[] = {
		{ "WEFT_NCCL_INTRODUCE", "off", "WEFT_NCCL_INTRODUCE" },
		{ "NCCL_HOSTID", "mine", "'mine', which weft does not change" },
		{ "NCCL_HOSTID", "", "NCCL_HOSTID" },
		{ "NCCL_P2P_DISABLE", "1", "NCCL_P2P_DISABLE" },
		{ "NCCL_P2P_DISABLE", "0x10", "NCCL_P2P_DISABLE" },
		{ "NCCL_P2P_DISABLE", "0", NULL },
		{ "NCCL_P2P_DISABLE", "", NULL },
		{ "NCCL_P2P_DISABLE", "no", NULL },
		{ "NCCL_CUMEM_ENABLE", "0", "NCCL_CUMEM_ENABLE" },
		{ "NCCL_CUMEM_ENABLE", "0x0", "NCCL_CUMEM_ENABLE" },
		{ "NCCL_CUMEM_ENABLE", "no", "NCCL_CUMEM_ENABLE" },
		{ "NCCL_CUMEM_ENABLE", "1", NULL },
		{ "NCCL_CUMEM_ENABLE", "-2", NULL },
		{ "NCCL_CUMEM_ENABLE", "", NULL },
	};

	try_settings(rows, sizeof(rows) / sizeof(*rows));
}

Test(samehost, nccl_without_cumem_is_refused)
{
	declined_for(21806, "NCCL 2.18");
	find(21903);
	cr_expect(host.introduced);
	setenv("NCCL_CUMEM_ENABLE", "1", 1);
	find(21806);
	cr_expect(host.introduced);
}

Test(samehost, host_that_is_not_known_is_refused)
{
	hidden = "/proc/sys/";
	declined("this host cannot be identified");
}

/* Without it equal ids may be different users outside. */
Test(samehost, uid_map_that_cannot_be_read_is_refused)
{
	introduced();
	hidden = "/proc/self/uid_map";
	declined("'/proc/self/uid_map' cannot be read (No such file");
}

Test(samehost, mps_daemon_is_refused)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", in("control"));
	cr_assert(zero(int, bind(fd, (struct sockaddr *)&sa, sizeof(sa))));
	cr_assert(zero(int, listen(fd, 1)));
	setenv("CUDA_MPS_PIPE_DIRECTORY", folder, 1);
	declined("MPS");
	close(fd);
	introduced();
}

/* ---- the folder --------------------------------------------------------- */

Test(samehost, missing_folder_is_refused)
{
	setenv("WEFT_RUN_DIR", in("nowhere"), 1);
	declined("nowhere/weft-");
}

Test(samehost, folder_open_to_others_is_refused)
{
	cr_assert(zero(int, mkdir(own(""), 0700)));
	cr_assert(zero(int, chmod(own(""), 0755)));
	declined("is not a folder of uid");
}

/* The others of this user do the same, also those that start later. */
static void evaded(void)
{
	char next[192];

	introduced();
	snprintf(next, sizeof(next), "%s.1", own(""));
	cr_expect(eq(str, host.folder, next));
	unlink(own(""));
	rmdir(own(""));
	cr_expect(not(another()));
}

Test(samehost, symbolic_link_in_place_of_the_folder_is_evaded)
{
	cr_assert(zero(int, symlink(in("dev"), own(""))));
	evaded();
}

Test(samehost, folder_of_another_user_is_evaded)
{
	if (geteuid())
		cr_skip_test("only root can give a folder away");
	cr_assert(zero(int, mkdir(own(""), 0700)));
	cr_assert(zero(int, chown(own(""), 12345, 12345)));
	evaded();
}

Test(samehost, names_that_are_all_taken_are_refused)
{
	char name[40];
	unsigned int i;

	for (i = 0; i < 8; i++) {
		snprintf(name, sizeof(name),
			 i ? "run/weft-%u.%u" : "run/weft-%u", geteuid(), i);
		write_file(name, "");
	}
	declined("is not a folder of uid");
}

/* Where Kubernetes has a folder for the claim of the GPUs. */
Test(samehost, folder_of_the_platform_is_taken)
{
	char claimed[192];

	mkdir(in("claim"), 0755);
	setenv("NVIDIA_DRA_LOCAL_IPC_DIR", in("claim"), 1);
	introduced();
	cr_expect(eq(str, host.folder, (char *)own("")), "the user's first");
	unsetenv("WEFT_RUN_DIR");
	introduced();
	snprintf(claimed, sizeof(claimed), "%s/weft-%u", in("claim"),
		 geteuid());
	cr_expect(eq(str, host.folder, claimed));
	setenv("NVIDIA_DRA_LOCAL_IPC_DIR", "claim", 1);
	cr_assert(zero(int, chdir(folder)));
	declined("NVIDIA_DRA_LOCAL_IPC_DIR ('claim') is not an absolute path");
}

Test(samehost, damaged_cookie_is_refused)
{
	char name[32];

	cr_assert(zero(int, mkdir(own(""), 0700)));
	snprintf(name, sizeof(name), "run/weft-%u/cookie", geteuid());
	write_file(name, "too short");
	declined("/cookie' is not one of weft's; remove it");
	write_file(name, "this is too long a cookie");
	declined("/cookie' is not one of weft's; remove it");
}

Test(samehost, path_too_long_for_sockets_is_refused)
{
	char path[192];

	snprintf(path, sizeof(path), "%s/%064d", in("run"), 0);
	cr_assert(zero(int, mkdir(path, 0755)));
	setenv("WEFT_RUN_DIR", path, 1);
	declined("too long a name for sockets");
}

Test(samehost, relative_path_is_refused)
{
	cr_assert(zero(int, chdir(folder)));
	setenv("WEFT_RUN_DIR", "run", 1);
	declined("not an absolute path");
}

Test(samehost, only_the_cookie_is_left_behind)
{
	introduced();
	unlink(own("cookie"));
	cr_expect(zero(int, rmdir(own(""))));
}
