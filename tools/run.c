/* SPDX-License-Identifier: BSD-3-Clause */
/* weft run: sets the environment and becomes the program. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/settings_table.h"
#include "bootstrap/ucxenv.h"
#include "nccl_net/env.h"
#include "tools/tool.h"
#include "util/util.h"

static const char help[] =
	"usage: weft run [--print] COMMAND [ARGUMENT...]\n"
	"\n"
	"Starts COMMAND, unchanged, with weft loaded into its UCX.\n"
	"\n"
	"  -p, --print   print the variables as shell commands; start nothing\n"
	"  -h, --help    show this\n"
	"\n"
	"What is set. Variables that you have set stay, except as described here:\n"
	"  LD_PRELOAD    libweft_preload.so, before yours; it also introduces NCCL to\n"
	"                other containers of this host (WEFT_NCCL_INTRODUCE)\n"
	"  UCX_TLS       weft_tcp, with a GPU also weft_nvl and cuda_copy. In your own\n"
	"                list weft_tcp replaces tcp or is added, weft_nvl replaces\n"
	"                cuda_ipc, sockcm is dropped; a list with a weft_ name stays.\n"
	"                Dask's flags (DASK_DISTRIBUTED_UCXX__TCP and the like) are\n"
	"                followed\n"
	"  WEFT_UCX      on, if UCX_TLS is 'all' or begins with ^; UCX_TLS then stays\n"
	"  UCX_SOCKADDR_TLS_PRIORITY\n"
	"                tcp, if it is sockcm, which today's UCX lacks\n"
	"  UCX_RNDV_FRAG_MEM_TYPES, UCX_CUDA_COPY_ASYNC_MEM_TYPE\n"
	"                host and cuda, if unset and weft_nvl is used\n"
	"  UCX_NET_DEVICES\n"
	"                from Dask's NET_DEVICES, if unset; the interface of a verbs\n"
	"                device is added\n"
	"  NCCL_SOCKET_IFNAME, NCCL_SOCKET_FAMILY\n"
	"                if unset: the interfaces that weft, UCX or Dask use, for\n"
	"                NCCL's bootstrap\n"
	"  NCCL_IB_HCA, NCCL_IB_DISABLE\n"
	"                the same for InfiniBand and RoCE adapters\n"
	"  NCCL_NET_PLUGIN_REF_COUNT\n"
	"                1, if unset and NCCL_NET_PLUGIN names weft: NCCL 2.28 cannot\n"
	"                load it twice. With NVLink for NCCL also what\n"
	"                `weft info nccl` shows\n"
	"\n"
	"The exit code is COMMAND's, or 127 if it is not found and 126 if it cannot be\n"
	"started. weft(7) lists weft's own settings.\n";

#define PRELOAD "libweft_preload.so"

/* A variable to set. */
struct change {
	const char *name;
	const char *value;
	const char *reason;
};

/*
 * Open MPI (opal/mca/common/ucx) uses UCX only if that has one of the
 * transports and one of the devices in its lists, and Debian's parameter file
 * excludes the ucx components.  An empty list excludes none: without weft in
 * UCX, Open MPI continues as before.  mpirun's --mca overrides each variable.
 */
static const struct change open_mpi[] = {
	{ "OMPI_MCA_pml", "", "Open MPI may use UCX" },
	{ "OMPI_MCA_osc", "", "the same for its one-sided operations" },
	{ "OMPI_MCA_pml_ucx_tls", "weft_tcp,weft_nvl,weft_ib",
	  "the transports with which Open MPI uses UCX" },
	{ "OMPI_MCA_pml_ucx_devices", "any", "the same for devices" },
};

/*
 * Empty if LD_PRELOAD has the library already.  Of two installations only one
 * can enter a UCX: another one's library is left out.
 */
static void make_preload(const char *library, char *value, size_t len)
{
	static const char separators[] = " :\t\n";
	const char *entry = getenv("LD_PRELOAD") ?: "";
	const char *base;
	size_t n, at;

	at = (size_t)snprintf(value, len, "%s", library);
	for (; *entry && at < len; entry += n + !!entry[n]) {
		n = strcspn(entry, separators);
		if (n == strlen(library) && !memcmp(entry, library, n)) {
			*value = '\0';
			return;
		}
		base = memrchr(entry, '/', n);
		if (base && entry + n - base == sizeof("/" PRELOAD) - 1 &&
		    !memcmp(base + 1, PRELOAD, sizeof(PRELOAD) - 1))
			tool_error("run",
				   "LD_PRELOAD has another weft's '%.*s': left "
				   "out, '%s' takes its place",
				   (int)n, entry, library);
		else if (n)
			at += (size_t)snprintf(value + at, len - at, ":%.*s",
					       (int)n, entry);
	}
}

static int collect_changes(struct change *changes, struct weft_ucxenv *ucx,
			   size_t *n)
{
	static char preload[1 << 16];
	char library[TOOL_PATH_MAX];
	struct weft_nccl_setting nccl;
	size_t i, count;

	if (!tool_find(PRELOAD, library))
		return tool_error("run",
				  "libweft_preload.so is neither beside this "
				  "program's folder nor in %s; reinstall "
				  "weft ('make install')",
				  WEFT_LIBDIR);
	if (strpbrk(library, " :\t\n"))
		return tool_error("run",
				  "the dynamic linker takes no blank and no "
				  "colon in LD_PRELOAD, but '%s' has one; "
				  "install weft elsewhere",
				  library);
	make_preload(library, preload, sizeof(preload));
	if (*preload) {
		changes[0].value = preload;
		changes[0].name = "LD_PRELOAD";
		changes[0].reason = "loads weft into UCX";
		(*n)++;
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

int run_main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "print", no_argument, NULL, 'p' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct weft_ucxenv ucx[WEFT_UCXENV_MAX];
	struct change changes[WEFT_UCXENV_MAX + 1 + ARRAY_SIZE(open_mpi) +
			      WEFT_NCCL_ENV_MAX];
	bool print = false;
	size_t n = 0, i;
	int c, err;

	opterr = 0;
	/* "+": stop at COMMAND */
	while ((c = getopt_long(argc, argv, "+ph", options, NULL)) != -1) {
		switch (c) {
		case 'p':
			print = true;
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		default:
			return usage_error("run", "unknown option '%s'",
					   argv[optind - 1]);
		}
	}
	if (optind == argc && !print)
		return usage_error("run", "no command given");
	err = collect_changes(changes, ucx, &n);
	if (err)
		return err;
	for (i = 0; i < n; i++) {
		if (print) {
			printf("export %s=", changes[i].name);
			print_quoted(changes[i].value);
			printf("\t# %s\n", changes[i].reason);
		} else if (setenv(changes[i].name, changes[i].value, 1)) {
			return tool_error("run", "cannot set %s: %m",
					  changes[i].name);
		}
	}
	if (print)
		return 0;
	execvp(argv[optind], argv + optind);
	err = errno == ENOENT ? 127 : 126;
	tool_error("run", "cannot start '%s': %m", argv[optind]);
	return err;
}
