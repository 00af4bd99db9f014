/* SPDX-License-Identifier: BSD-3-Clause */
/* weft run: sets the environment and becomes the program. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/netdevs.h"
#include "host/netif.h"
#include "nccl_net/api/env.h"
#include "settings/table.h"
#include "tools/run/launcher.h"
#include "tools/run/pids.h"
#include "tools/tool.h"
#include "ucx_tl/ucxenv.h"
#include "util/parse.h"
#include "util/util.h"

static const char help[] =
	"usage: weft run [--print] [--gpus-per-task N] COMMAND [ARGUMENT...]\n"
	"\n"
	"Starts COMMAND, unchanged, with weft loaded into its UCX and NCCL.\n"
	"\n"
	"  -p, --print   print the variables as shell commands; start nothing\n"
	"  -g, --gpus-per-task N\n"
	"                in a task of a launcher (mpirun, srun, ...): set\n"
	"                CUDA_VISIBLE_DEVICES to the task's own N GPUs, the first N for\n"
	"                local rank 0, the next for 1. If it is set, choose among those\n"
	"                that it names; N or fewer stay. Not for programs that choose by\n"
	"                local rank themselves, as nccl-tests does\n"
	"  -h, --help    show this\n"
	"\n"
	"What is set. Variables that you have set stay, except as described here:\n"
	"  LD_PRELOAD    libweft_preload.so, before yours; it also introduces NCCL to\n"
	"                other containers of this host (WEFT_NCCL_INTRODUCE)\n"
	"  UCX_TLS       weft_shm and weft_tcp, with a GPU also weft_nvl and cuda_copy.\n"
	"                In your own list the first two replace tcp or are added,\n"
	"                weft_nvl replaces cuda_ipc, sockcm is dropped; a list with a\n"
	"                weft_ name stays. Dask's flags (DASK_DISTRIBUTED_UCXX__TCP and\n"
	"                the like) are followed\n"
	"  WEFT_UCX      on, if UCX_TLS is 'all' or begins with ^; UCX_TLS then stays\n"
	"  UCX_SOCKADDR_TLS_PRIORITY\n"
	"                tcp, if it is sockcm, which current UCX lacks\n"
	"  UCX_RNDV_FRAG_MEM_TYPES, UCX_CUDA_COPY_ASYNC_MEM_TYPE\n"
	"                host and cuda, if unset and GPU memory is moved\n"
	"  UCX_CUDA_COPY_REG_WHOLE_ALLOC\n"
	"                off, likewise, with PyTorch's expandable segments\n"
	"  UCX_NET_DEVICES\n"
	"                from Dask's NET_DEVICES, if unset; the interface of a verbs\n"
	"                device is added\n"
	"  NCCL_SOCKET_IFNAME, NCCL_SOCKET_FAMILY\n"
	"                if unset: the interfaces that weft, UCX or Dask use, for\n"
	"                NCCL's bootstrap\n"
	"  NCCL_IB_HCA, NCCL_IB_DISABLE\n"
	"                the same for InfiniBand and RoCE adapters\n"
	"  NCCL_NET_PLUGIN_REF_COUNT\n"
	"                1, if unset and NCCL_NET_PLUGIN names weft: NCCL 2.28 and 2.29\n"
	"                forget the plugin with the last communicator\n"
	"  OMPI_MCA_pml, OMPI_MCA_osc, OMPI_MCA_pml_ucx_tls, OMPI_MCA_pml_ucx_devices\n"
	"                if unset: Open MPI may use UCX with weft's transports\n"
	"\n"
	"In a container with a GPU and process ids of its own, COMMAND gets an id that\n"
	"no container with the same WEFT_RUN_DIR has, as CUDA IPC requires; weft run\n"
	"then stays, and passes signals on.\n"
	"\n"
	"A line on standard error says if WEFT_NET_DEVICES leaves no interface here, or\n"
	"if WEFT_SECRET_FILE cannot be used; COMMAND is started all the same.\n"
	"\n"
	"The exit code is COMMAND's, or 127 if it is not found and 126 if it cannot be\n"
	"started. weft(7) lists weft's settings.\n";

static const char library[] = "libweft_preload.so";

/* A variable to set. */
struct change {
	const char *name;
	const char *value;
	const char *reason;
};
#define TASK_CHANGES 2

/*
 * Open MPI (opal/mca/common/ucx) uses UCX only if that has one of the
 * transports and one of the devices in its lists, and Debian's parameter file
 * excludes the ucx components.  An empty list excludes none: without weft in
 * UCX, Open MPI continues as before.  mpirun's --mca overrides each variable.
 */
static const struct change open_mpi[] = {
	{ "OMPI_MCA_pml", "", "Open MPI may use UCX" },
	{ "OMPI_MCA_osc", "", "the same for its one-sided operations" },
	{ "OMPI_MCA_pml_ucx_tls", "weft_tcp,weft_shm,weft_nvl,weft_ib",
	  "the transports with which Open MPI uses UCX" },
	{ "OMPI_MCA_pml_ucx_devices", "any", "the same for devices" },
};

/* Is LD_PRELOAD's @entry the library, in whatever folder? */
static bool is_library(const char *entry, size_t len)
{
	const char *slash = memrchr(entry, '/', len);
	const size_t dir = slash ? (size_t)(slash + 1 - entry) : len;

	return len - dir == strlen(library) &&
	       !memcmp(entry + dir, library, len - dir);
}

/*
 * Empty if LD_PRELOAD has @path already.  Only one of two installations can
 * enter a UCX: leave out the other.
 */
static void make_preload(const char *path, char *value, size_t len)
{
	static const char separators[] = " :\t\n";
	const char *entry = getenv("LD_PRELOAD") ?: "";
	bool present = false;
	size_t length, at;

	at = (size_t)snprintf(value, len, "%s", path);
	for (; *entry && at < len; entry += length + !!entry[length]) {
		length = strcspn(entry, separators);
		if (length && !is_library(entry, length))
			at += (size_t)snprintf(value + at, len - at, ":%.*s",
					       (int)length, entry);
		else if (length == strlen(path) && !memcmp(entry, path, length))
			present = true;
		else if (length)
			tool_error(
				"run",
				"LD_PRELOAD has another weft's '%.*s': left out, '%s' takes its place",
				(int)length, entry, path);
	}
	if (present)
		*value = '\0';
}

static int find_library(char path[TOOL_PATH_MAX])
{
	if (!tool_find(library, path))
		return tool_error(
			"run",
			"%s is not in the prefix that this program is in; reinstall weft, or copy bin and lib together",
			library);
	if (strpbrk(path, " :\t\n"))
		return tool_error(
			"run",
			"the dynamic linker takes no blank and no colon in LD_PRELOAD, but '%s' has one; install weft elsewhere",
			path);
	return 0;
}

/* weft_ib uses one port per process, if there are several to choose from. */
static void choose_port(struct change *changes, size_t *n)
{
	static char reason[WEFT_VERBS_NAME + 80];
	struct weft_setting_info setting;
	struct weft_verbs_port *ports;
	enum weft_distance distance;
	struct weft_pci gpu;
	unsigned int turn;
	int count, best;

	weft_settings_named("WEFT_NET_DEVICES", &setting);
	count = weft_verbs_list(&ports);
	if (count > 1 && !strcmp(setting.origin, "default") &&
	    weft_gpu_of_process(&gpu, &turn)) {
		best = weft_verbs_nearest(ports, (size_t)count, &gpu, turn,
					  &distance);
		snprintf(reason, sizeof(reason),
			 "of %d ports weft_ib uses %s, nearest to the GPU (%s)",
			 count, ports[best].name, weft_distance_name(distance));
		changes[*n].name = "WEFT_NET_DEVICES";
		changes[*n].value = "auto";
		changes[(*n)++].reason = reason;
	}
	if (count >= 0)
		free(ports);
}

/*
 * The GPUs of this task and the port nearest to them.  Sets
 * CUDA_VISIBLE_DEVICES at once, because what follows depends on it.
 */
static int choose_gpus(const struct launcher_task *task, unsigned int count,
		       struct change *changes, size_t *n)
{
	static struct launcher_gpus choice;
	char why[LAUNCHER_WHY_LEN];

	if (!count)
		return 0;
	if (!task->variable)
		return tool_error(
			"run",
			"--gpus-per-task: no launcher has set this task's local rank (weft-run(1) lists the variables)");
	if (launcher_choose_gpus(task, count, &choice, why))
		return tool_error("run", "%s", why);
	if (*choice.list) {
		if (setenv("CUDA_VISIBLE_DEVICES", choice.list, 1))
			return tool_error(
				"run", "cannot set CUDA_VISIBLE_DEVICES: %m");
		changes[*n].name = "CUDA_VISIBLE_DEVICES";
		changes[*n].value = choice.list;
		changes[(*n)++].reason = choice.reason;
	}
	choose_port(changes, n);
	return 0;
}

static int collect_changes(struct change *changes, struct weft_ucxenv *ucx,
			   size_t *n)
{
	static char preload[1 << 16];
	char path[TOOL_PATH_MAX];
	struct weft_nccl_setting nccl;
	size_t i, count;
	int err;

	err = find_library(path);
	if (err)
		return err;
	make_preload(path, preload, sizeof(preload));
	if (*preload) {
		changes[*n].value = preload;
		changes[*n].name = "LD_PRELOAD";
		changes[(*n)++].reason = "loads weft into UCX";
	}
	count = weft_ucxenv(WEFT_UCXENV_RUN, ucx);
	for (i = 0; i < count; i++, (*n)++) {
		changes[*n].name = ucx[i].name;
		changes[*n].value = ucx[i].value;
		changes[*n].reason = ucx[i].reason;
	}
	for (i = 0; i < ARRAY_SIZE(open_mpi); i++)
		if (weft_settings()->ucx != WEFT_OFF &&
		    !getenv(open_mpi[i].name))
			changes[(*n)++] = open_mpi[i];
	weft_nccl_plugin_lost();
	for (i = 0; i < weft_nccl_env_count(); i++) {
		weft_nccl_env(i, &nccl);
		if (!nccl.value || getenv(nccl.name))
			continue;
		changes[*n].name = nccl.name;
		changes[*n].value = nccl.value;
		changes[(*n)++].reason = nccl.why;
	}
	return 0;
}

/* Say so if the user's list leaves nothing on this host. */
static void check_interfaces(void)
{
	struct weft_setting_info set;
	struct weft_verbs_port *ports;
	struct weft_netif *list;
	int n, i, allowed = 0;

	weft_settings_named("WEFT_NET_DEVICES", &set);
	n = weft_netif_list(weft_settings()->family, &list);
	if (n < 0)
		return;
	for (i = 0; i < n; i++)
		allowed += weft_netdevs_allowed(list[i].name);
	free(list);
	if (!n || allowed || !strcmp(set.origin, "default"))
		return;
	n = weft_verbs_list(&ports);
	if (n >= 0)
		free(ports);
	if (n <= 0)
		tool_error(
			"run",
			"%s=%s leaves no interface that is up here: weft reaches no other host ('weft info' lists them)",
			weft_setting_variable(&set), set.value);
}

/*
 * Warns once of errors that every process would have; COMMAND is started
 * nevertheless.
 */
static void check_settings(void)
{
	const uint8_t *secret;
	size_t len;

	check_interfaces();
	/* logs the error; this process may stay, and needs no secret */
	if (!weft_settings_secret(&secret, &len))
		weft_settings_secret_reset();
}

/* Quote for the shell. */
static void print_quoted(const char *text)
{
	putchar('\'');
	for (; *text; text++)
		if (*text == '\'')
			fputs("'\\''", stdout);
		else
			putchar(*text);
	putchar('\'');
}

/* Prints what the launcher has set. */
static void print_task(const struct launcher_task *task)
{
	char cpus[LAUNCHER_CPUS_LEN];

	launcher_read_cpus(cpus);
	if (task->variable)
		printf("# local rank %u (%s), processors %s\n",
		       task->local_rank, task->variable, cpus);
}

/* -1: go on with what was read; else the exit status. */
static int read_options(int argc, char **argv, bool *print, uint64_t *gpus)
{
	int set = 0;
	const struct option options[] = {
		TOOL_HELP,
		{ "gpus-per-task", required_argument, NULL, 'g' },
		{ "print", no_argument, &set, 'p' },
		{ 0 },
	};
	const char *number = NULL;
	int rc = tool_options(argc, argv, options, true, &number, help);

	if (rc >= 0)
		return rc;
	*print = set;
	if (number && weft_parse_u64(number, 1, WEFT_GPUS_MAX, gpus))
		return usage_error("run",
				   "'%s' is not a number of GPUs (1 to %d)",
				   number, WEFT_GPUS_MAX);
	return optind == argc && !set ? usage_error("run", "no command given")
				      : -1;
}

static void print_changes(const struct change *changes, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		printf("export %s=", changes[i].name);
		print_quoted(changes[i].value);
		printf("\t# %s\n", changes[i].reason);
	}
}

static int make_changes(const struct change *changes, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (setenv(changes[i].name, changes[i].value, 1))
			return tool_error("run", "cannot set %s: %m",
					  changes[i].name);
	return 0;
}

static int start_command(char **command)
{
	int err;

	if (!pids_take_range())
		return pids_start(command);
	execvp(command[0], command);
	err = errno == ENOENT ? 127 : 126;
	tool_error("run", "cannot start '%s': %m", command[0]);
	return err;
}

int run_main(int argc, char **argv)
{
	struct weft_ucxenv ucx[WEFT_UCXENV_MAX];
	struct change changes[TASK_CHANGES + WEFT_UCXENV_MAX + 1 +
			      ARRAY_SIZE(open_mpi) + WEFT_NCCL_ENV_MAX];
	struct launcher_task task = { 0 };
	char why[LAUNCHER_WHY_LEN];
	bool print = false;
	uint64_t gpus = 0;
	size_t n = 0;
	int err;

	err = read_options(argc, argv, &print, &gpus);
	if (err >= 0)
		return err;
	if ((print || gpus) && launcher_find(&task, why))
		return tool_error("run", "%s", why);
	if (print)
		print_task(&task);
	err = choose_gpus(&task, (unsigned int)gpus, changes, &n);
	if (!err)
		err = collect_changes(changes, ucx, &n);
	if (err)
		return err;
	check_settings();
	if (print) {
		print_changes(changes, n);
		return 0;
	}
	err = make_changes(changes, n);
	return err ? err : start_command(argv + optind);
}
