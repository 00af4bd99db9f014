/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "host/pci.h"
#include "settings/table.h"
#include "ucx_tl/ucxenv.h"
#include "tests/lib/folder.h"
#include "util/util.h"
#ifdef HAVE_VERBS_H
#include "util/drivers/verbs.h"
#endif

static const char *given; /* what the environment is */

/* "A=1 B=2" as the whole environment. */
static void environment(const char *text)
{
	char copy[512], *word, *save;

	clearenv();
	given = text;
	snprintf(copy, sizeof(copy), "%s", text);
	for (word = strtok_r(copy, " ", &save); word;
	     word = strtok_r(NULL, " ", &save)) {
		char *value = strchr(word, '=');

		*value++ = '\0';
		setenv(word, value, 1);
	}
	weft_settings_reset();
}

static const char *mapped(enum weft_ucxenv_how how)
{
	static char text[1024];
	struct weft_ucxenv out[WEFT_UCXENV_MAX];
	size_t n = weft_ucxenv(how, out), i, len = 0;

	text[0] = '\0';
	for (i = 0; i < n; i++) {
		cr_expect(gt(sz, strlen(out[i].reason), 0));
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					"%s%s=%s", len ? " " : "", out[i].name,
					out[i].value);
	}
	return text;
}

#define NEW	 "DASK_DISTRIBUTED_UCXX__"
#define OLD	 "DASK_DISTRIBUTED__COMM__UCX__"
#define SOCKADDR "UCX_SOCKADDR_TLS_PRIORITY="

struct row {
	const char *given;
	const char *loaded; /* what mere loading changes */
	const char *run;    /* what weft run sets */
	bool offered;	    /* the device, when merely loaded */
};

static void expect_mapped(enum weft_ucxenv_how how, const char *want)
{
	cr_expect(eq(str, (char *)mapped(how), (char *)want), "[%s], %s", given,
		  how == WEFT_UCXENV_RUN ? "weft run" : "loaded");
}

static void try_rows(const struct row *r, size_t n, const char *device)
{
	for (; n--; r++) {
		environment(r->given);
		expect_mapped(WEFT_UCXENV_LOADED, r->loaded);
		expect_mapped(WEFT_UCXENV_RUN, r->run);
		cr_expect(weft_is_requested(device) == r->offered,
			  "[%s], offered", r->given);
	}
}

/* Of weft_tcp. */
static const struct row cases[] = {
	{ "", "", "UCX_TLS=weft_shm,weft_tcp", false },
	{ "UCX_TLS=all", "", "WEFT_UCX=on", false },
	{ "UCX_TLS=^tcp", "", "WEFT_UCX=on", false },
	{ "UCX_TLS=^weft_tcp", "", "WEFT_UCX=on", false },
	{ "UCX_TLS=^sm,weft_tcp", "", "WEFT_UCX=on", false },
	{ "UCX_TLS=tcp", "", "UCX_TLS=weft_shm,weft_tcp", false },
	{ "UCX_TLS=tcp,cuda_copy,sm", "", "UCX_TLS=weft_shm,weft_tcp,sm",
	  false },
	{ "UCX_TLS=rc,ud:aux,cuda", "", "UCX_TLS=weft_shm,weft_tcp,rc,ud:aux",
	  false },
	{ "UCX_TLS=\\rc_x,\\tcp", "", "UCX_TLS=\\rc_x,weft_shm,weft_tcp",
	  false },
	{ "UCX_TLS=weft_tcp", "", "", true },
	{ "UCX_TLS=weft_tcp,tcp", "", "", true },
	{ "UCX_TLS=\\weft_tcp,sm", "", "", true },
	{ "UCX_TLS=sm,weft_tcp:aux", "", "", true },
	{ "UCX_TLS=weft_nvl,cuda_copy", "", "", false },
	{ "UCX_TLS=weft_tcpx", "", "", false },
	/* seed 004 */
	{ "UCX_TLS=tcp,sockcm " SOCKADDR "sockcm UCXPY_IFNAME=eth0", "",
	  "UCX_TLS=weft_shm,weft_tcp " SOCKADDR "tcp", false },
	{ "UCX_TLS=tcp,sockcm,cuda_copy,cuda_ipc " SOCKADDR "sockcm", "",
	  "UCX_TLS=weft_shm,weft_tcp " SOCKADDR "tcp", false },
	{ "UCX_TLS=sockcm,cuda_copy,cuda_ipc " SOCKADDR "sockcm", "",
	  "UCX_TLS=weft_shm,weft_tcp " SOCKADDR "tcp", false },
	{ "UCX_TLS=weft_tcp,sockcm " SOCKADDR "sockcm",
	  "UCX_TLS=weft_tcp " SOCKADDR "tcp",
	  "UCX_TLS=weft_tcp " SOCKADDR "tcp", true },
	{ "UCX_TLS=weft_tcp " SOCKADDR "rdmacm,sockcm", "", "", true },
	{ SOCKADDR "sockcm", "", "UCX_TLS=weft_shm,weft_tcp " SOCKADDR "tcp",
	  false },
	/* seed 001 and its later forms */
	{ "DASK_UCX__TCP=True", "UCX_TLS=weft_shm,weft_tcp",
	  "UCX_TLS=weft_shm,weft_tcp", true },
	{ OLD "TCP=true", "UCX_TLS=weft_shm,weft_tcp",
	  "UCX_TLS=weft_shm,weft_tcp", true },
	{ NEW "TCP=1", "UCX_TLS=weft_shm,weft_tcp", "UCX_TLS=weft_shm,weft_tcp",
	  true },
	{ "DASK_UCX__TCP=False", "", "UCX_TLS=weft_shm,weft_tcp", false },
	{ "DASK_UCX__TCP=True " NEW "TCP=False", "",
	  "UCX_TLS=weft_shm,weft_tcp", false },
	{ "DASK_UCX__CUDA_COPY=True", "", "UCX_TLS=weft_shm,weft_tcp", false },
	{ "DASK_UCX__INFINIBAND=True", "UCX_TLS=weft_shm,weft_tcp",
	  "UCX_TLS=weft_shm,weft_tcp", true },
	{ "DASK_UCX__TCP=True DASK_UCX__RDMACM=True",
	  "UCX_TLS=weft_shm,weft_tcp " SOCKADDR "rdmacm,tcp",
	  "UCX_TLS=weft_shm,weft_tcp " SOCKADDR "rdmacm,tcp", true },
	{ "DASK_UCX__TCP=True DASK_UCX__NET_DEVICES=eth0",
	  "UCX_TLS=weft_shm,weft_tcp UCX_NET_DEVICES=eth0",
	  "UCX_TLS=weft_shm,weft_tcp UCX_NET_DEVICES=eth0", true },
	{ "DASK_UCX__TCP=True DASK_UCX__NET_DEVICES=auto",
	  "UCX_TLS=weft_shm,weft_tcp", "UCX_TLS=weft_shm,weft_tcp", true },
	{ "DASK_UCX__TCP=True UCX_NET_DEVICES=auto",
	  "UCX_TLS=weft_shm,weft_tcp UCX_NET_DEVICES=all WEFT_NET_DEVICES=auto",
	  "UCX_TLS=weft_shm,weft_tcp UCX_NET_DEVICES=all WEFT_NET_DEVICES=auto",
	  true },
	{ "UCX_TLS=weft_tcp UCX_NET_DEVICES=auto WEFT_NET_DEVICES=eth0",
	  "UCX_NET_DEVICES=all", "UCX_NET_DEVICES=all", true },
	{ NEW "TCP=True " NEW "ENVIRONMENT__NET_DEVICES=auto",
	  "UCX_TLS=weft_shm,weft_tcp UCX_NET_DEVICES=all WEFT_NET_DEVICES=auto",
	  "UCX_TLS=weft_shm,weft_tcp UCX_NET_DEVICES=all WEFT_NET_DEVICES=auto",
	  true },
	{ "UCX_TLS=tcp UCX_NET_DEVICES=auto", "",
	  "UCX_TLS=weft_shm,weft_tcp UCX_NET_DEVICES=all WEFT_NET_DEVICES=auto",
	  false },
	{ "DASK_UCX__TCP=True DASK_UCX__NET_DEVICES=eth0 UCX_NET_DEVICES=ib0",
	  "UCX_TLS=weft_shm,weft_tcp", "UCX_TLS=weft_shm,weft_tcp", true },
	{ NEW "TCP=True " NEW "ENVIRONMENT__NET_DEVICES=eth0,mlx5_0:1,mlx5_0:2",
	  "UCX_TLS=weft_shm,weft_tcp UCX_NET_DEVICES=eth0,mlx5_0:1,mlx5_0:2",
	  "UCX_TLS=weft_shm,weft_tcp UCX_NET_DEVICES=eth0,mlx5_0:1,mlx5_0:2",
	  true },
	/* UCX_TLS wins over Dask's flags, these over Dask's environment */
	{ "UCX_TLS=tcp DASK_UCX__TCP=True", "", "UCX_TLS=weft_shm,weft_tcp",
	  false },
	{ OLD "ENVIRONMENT__TLS=weft_tcp", "", "", true },
	{ OLD "ENVIRONMENT__TLS=tcp", "", "UCX_TLS=weft_shm,weft_tcp", false },
	{ OLD "ENVIRONMENT__TLS=tcp DASK_UCX__TCP=True",
	  "UCX_TLS=weft_shm,weft_tcp", "UCX_TLS=weft_shm,weft_tcp", true },
	/* the switch */
	{ "WEFT_UCX=off UCX_TLS=weft_tcp", "", "", false },
	{ "WEFT_UCX=off DASK_UCX__TCP=True", "", "", false },
	{ "WEFT_UCX=on", "", "UCX_TLS=weft_shm,weft_tcp", true },
	{ "WEFT_UCX=on UCX_TLS=all", "", "", true },
	{ "WEFT_UCX=on UCX_TLS=all " SOCKADDR "sockcm", SOCKADDR "tcp",
	  SOCKADDR "tcp", true },
};

Test(ucxenv, variables_set_for_ucx)
{
	if (weft_gpu_here())
		cr_skip_test("the table is of a host without a GPU");
	try_rows(cases, ARRAY_SIZE(cases), "weft_tcp");
}

#define GPU   "WEFT_LIBCUDA=/nowhere "
#define ASYNC " UCX_CUDA_COPY_ASYNC_MEM_TYPE=cuda"
#define FRAGS " UCX_RNDV_FRAG_MEM_TYPES=host" ASYNC
#define WHOLE " UCX_CUDA_COPY_REG_WHOLE_ALLOC=off"

/* weft_nvl is offered where `loaded` or UCX_TLS has it. */
static const struct row gpu_cases[] = {
	{ GPU, "", "UCX_TLS=weft_nvl,weft_shm,weft_tcp,cuda_copy" FRAGS,
	  false },
	{ GPU "CUDA_VISIBLE_DEVICES=0", "",
	  "UCX_TLS=weft_nvl,weft_shm,weft_tcp,cuda_copy" FRAGS, false },
	{ GPU "CUDA_VISIBLE_DEVICES=", "", "UCX_TLS=weft_shm,weft_tcp", false },
	{ GPU "CUDA_VISIBLE_DEVICES=-1", "", "UCX_TLS=weft_shm,weft_tcp",
	  false },
	{ GPU "CUDA_VISIBLE_DEVICES= " NEW "NVLINK=True",
	  "UCX_TLS=weft_shm,weft_tcp", "UCX_TLS=weft_shm,weft_tcp", false },
	{ GPU "UCX_TLS=tcp,cuda_copy,cuda_ipc", "",
	  "UCX_TLS=weft_shm,weft_tcp,cuda_copy,weft_nvl" FRAGS, false },
	{ GPU "UCX_TLS=tcp,cuda_copy", "",
	  "UCX_TLS=weft_shm,weft_tcp,cuda_copy" FRAGS, false },
	{ GPU "UCX_TLS=weft_shm,cuda_copy", FRAGS + 1, FRAGS + 1, false },
	{ GPU "UCX_TLS=weft_shm,weft_tcp", "", "", false },
	{ GPU "UCX_TLS=sockcm,cuda_copy,cuda_ipc", "",
	  "UCX_TLS=weft_shm,weft_tcp,cuda_copy,weft_nvl" FRAGS, false },
	{ GPU "UCX_TLS=weft_nvl,weft_tcp,cuda_copy", FRAGS + 1, FRAGS + 1,
	  true },
	{ GPU "UCX_TLS=weft_nvl,weft_tcp UCX_RNDV_FRAG_MEM_TYPES=cuda",
	  ASYNC + 1, ASYNC + 1, true },
	{ GPU "UCX_TLS=weft_nvl,weft_ib", FRAGS + 1, FRAGS + 1, true },
	{ GPU "UCX_TLS=weft_nvl UCX_CUDA_COPY_ASYNC_MEM_TYPE=cuda-managed "
	      "UCX_RNDV_FRAG_MEM_TYPES=host",
	  "", "", true },
	{ GPU "UCX_TLS=weft_nvl,weft_tcp UCX_RNDV_FRAG_MEM_TYPE=cuda",
	  FRAGS + 1, FRAGS + 1, true },
	{ GPU "UCX_TLS=weft_tcp,cuda_copy", "", "", false },
	{ GPU "UCX_TLS=all", "", "WEFT_UCX=on" FRAGS, false },
	{ GPU "WEFT_UCX=on UCX_TLS=^sm", FRAGS + 1, FRAGS + 1, true },
	{ GPU "WEFT_UCX=on UCX_TLS=^sm,cuda_copy", "", "", true },
	{ GPU "WEFT_UCX=on", FRAGS + 1,
	  "UCX_TLS=weft_nvl,weft_shm,weft_tcp,cuda_copy" FRAGS, true },
	{ GPU "DASK_UCX__TCP=True DASK_UCX__NVLINK=True "
	      "DASK_UCX__CUDA_COPY=True",
	  "UCX_TLS=weft_shm,weft_tcp,cuda_copy,weft_nvl" FRAGS,
	  "UCX_TLS=weft_shm,weft_tcp,cuda_copy,weft_nvl" FRAGS, true },
	{ GPU NEW "NVLINK=True",
	  "UCX_TLS=weft_shm,weft_tcp,cuda_copy,weft_nvl" FRAGS,
	  "UCX_TLS=weft_shm,weft_tcp,cuda_copy,weft_nvl" FRAGS, true },
	{ GPU NEW "NVLINK=True " NEW "ENVIRONMENT__RNDV_FRAG_MEM_TYPES=cuda",
	  "UCX_TLS=weft_shm,weft_tcp,cuda_copy,weft_nvl" ASYNC,
	  "UCX_TLS=weft_shm,weft_tcp,cuda_copy,weft_nvl" ASYNC, true },
	{ GPU "UCX_TLS=weft_nvl PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:9,"
	      "expandable_segments:True",
	  FRAGS WHOLE + 1, FRAGS WHOLE + 1, true },
	{ GPU "UCX_TLS=weft_nvl PYTORCH_ALLOC_CONF=expandable_segments:True",
	  FRAGS WHOLE + 1, FRAGS WHOLE + 1, true },
	{ GPU "UCX_TLS=weft_nvl PYTORCH_ALLOC_CONF=expandable_segments:False",
	  FRAGS + 1, FRAGS + 1, true },
	{ GPU "UCX_TLS=weft_nvl PYTORCH_ALLOC_CONF=expandable_segments:True "
	      "UCX_CUDA_COPY_REG_WHOLE_ALLOC=on",
	  FRAGS + 1, FRAGS + 1, true },
	{ GPU "UCX_TLS=weft_tcp PYTORCH_ALLOC_CONF=expandable_segments:True",
	  "", "", false },
	{ GPU "WEFT_UCX=off UCX_TLS=weft_nvl", "", "", false },
};

Test(ucxenv, gpu_transports_follow_the_gpu)
{
	try_rows(gpu_cases, ARRAY_SIZE(gpu_cases), "weft_nvl");
}

/* UCX fails a worker that has weft_nvl and no cuda_copy. */
Test(ucxenv, cuda_copy_is_recognised_in_tls)
{
	static const struct {
		const char *given;
		bool let_in;
	} lists[] = {
		{ "", true },
		{ "UCX_TLS=all", true },
		{ "UCX_TLS=weft_nvl,cuda_copy", true },
		{ "UCX_TLS=weft_nvl,cuda", true },
		{ "UCX_TLS=weft_nvl,\\cuda_copy", true },
		{ "UCX_TLS=weft_nvl,weft_tcp", false },
		{ "UCX_TLS=weft_nvl,cuda_ipc", false },
		{ "UCX_TLS=^cuda_ipc", true },
		{ "UCX_TLS=^cuda_copy", false },
		{ "UCX_TLS=^sm,cuda_copy", false },
		{ "UCX_TLS=^cuda", false },
		{ OLD "ENVIRONMENT__TLS=^cuda", false },
		{ GPU NEW "NVLINK=True", true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(lists); i++) {
		environment(lists[i].given);
		cr_expect(weft_cuda_copy_requested() == lists[i].let_in, "[%s]",
			  lists[i].given);
	}
}

/* Without one, UCX has no cuda transports and Dask fails for naming them. */
Test(ucxenv, no_gpu_no_gpu_transports)
{
	if (weft_gpu_here())
		cr_skip_test("there is one");
	environment("DASK_UCX__TCP=True DASK_UCX__NVLINK=True "
		    "DASK_UCX__CUDA_COPY=True");
	expect_mapped(WEFT_UCXENV_LOADED, "UCX_TLS=weft_shm,weft_tcp");
	environment("UCX_TLS=weft_nvl,weft_tcp");
	expect_mapped(WEFT_UCXENV_LOADED, "");
}

/* Done twice, the second time finds nothing left to do. */
Test(ucxenv, second_run_changes_nothing)
{
	struct weft_ucxenv out[WEFT_UCXENV_MAX];
	size_t i, j, n;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		environment(cases[i].given);
		n = weft_ucxenv(WEFT_UCXENV_RUN, out);
		for (j = 0; j < n; j++)
			setenv(out[j].name, out[j].value, 1);
		weft_settings_reset();
		expect_mapped(WEFT_UCXENV_RUN, "");
		expect_mapped(WEFT_UCXENV_LOADED, "");
	}
}

Test(ucxenv, only_what_is_named_is_offered)
{
	environment("UCX_TLS=weft_tcp,cuda_copy");
	cr_expect(weft_is_requested("weft_tcp"));
	cr_expect(not(weft_is_requested("weft_nvl")));
	cr_expect(not(weft_is_requested("weft")));
}

Test(ucxenv, environment_is_read_at_each_call)
{
	environment("");
	cr_expect(not(weft_is_requested("weft_tcp")));
	setenv("UCX_TLS", "weft_tcp", 1);
	cr_expect(weft_is_requested("weft_tcp"));
}

Test(ucxenv, verbs_device_adds_its_interface)
{
	folder_begin();
	environment("PATH=/bin:/usr/bin DASK_UCX__TCP=True "
		    "DASK_UCX__NET_DEVICES=mlx5_0:1");
	shell("mkdir -p class/infiniband/mlx5_0/device/net/ib0 "
	      "class/infiniband/rxe0 && "
	      "echo eth0 >class/infiniband/rxe0/parent");
	weft_sysfs_root = folder;
	expect_mapped(WEFT_UCXENV_LOADED, "UCX_TLS=weft_shm,weft_tcp "
					  "UCX_NET_DEVICES=mlx5_0:1,ib0");
	environment("PATH=/bin:/usr/bin UCX_TLS=weft_tcp "
		    "UCX_NET_DEVICES=mlx5_0:1,eth0");
	expect_mapped(WEFT_UCXENV_LOADED, "");
	expect_mapped(WEFT_UCXENV_RUN, "UCX_NET_DEVICES=mlx5_0:1,ib0,eth0");
	environment("PATH=/bin:/usr/bin UCX_TLS=weft_tcp "
		    "UCX_NET_DEVICES=mlx5_0:1,ib0");
	expect_mapped(WEFT_UCXENV_RUN, "");
	environment("PATH=/bin:/usr/bin UCX_TLS=weft_tcp "
		    "UCX_NET_DEVICES=mlx5_[0-3]:1");
	expect_mapped(WEFT_UCXENV_RUN, "UCX_NET_DEVICES=mlx5_[0-3]:1,ib0");
	environment("PATH=/bin:/usr/bin UCX_TLS=weft_tcp "
		    "UCX_NET_DEVICES=rxe0:1");
	expect_mapped(WEFT_UCXENV_RUN, "UCX_NET_DEVICES=rxe0:1,eth0");
	folder_end();
}

/*
 * Dask's flags for InfiniBand: weft_ib where it can be used, UCX's rc where
 * there is a port all the same, nothing where there is none.
 */
Test(ucxenv, infiniband_follows_the_port)
{
	static const char asked[] = "PATH=/bin:/usr/bin DASK_UCX__TCP=True "
				    "DASK_UCX__INFINIBAND=True "
				    "DASK_UCX__RDMACM=True "
				    "DASK_UCX__NET_DEVICES=mlx5_0:1";
	static const char *const rc =
		"UCX_TLS=rc,weft_shm,weft_tcp " SOCKADDR "rdmacm,tcp "
		"UCX_NET_DEVICES=mlx5_0:1,ib0";

	folder_begin();
	weft_sysfs_root = folder;
	environment(asked);
	expect_mapped(WEFT_UCXENV_LOADED,
		      "UCX_TLS=weft_shm,weft_tcp " SOCKADDR "rdmacm,tcp "
		      "UCX_NET_DEVICES=mlx5_0:1");
	shell("mkdir -p class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs"
	      " class/infiniband_verbs/uverbs99 && "
	      "cd class/infiniband/mlx5_0/ports/1 && "
	      "echo '4: ACTIVE' >state && echo InfiniBand >link_layer && "
	      "echo ib0 >gid_attrs/ndevs/0");
#ifdef HAVE_VERBS_H
	static const struct weft_verbs table;

	weft_verbs_set(&table);
	environment(asked);
	expect_mapped(WEFT_UCXENV_LOADED,
		      "UCX_TLS=weft_ib,weft_shm,weft_tcp " SOCKADDR "tcp "
		      "UCX_NET_DEVICES=mlx5_0:1,ib0");
	cr_expect(weft_is_requested("weft_ib"));
	cr_expect(eq(str, (char *)weft_ucxenv_option("TLS", "rc,tcp"),
		     (char *)"weft_ib,weft_shm,weft_tcp"));
	cr_expect(eq(
		str,
		(char *)weft_ucxenv_option("SOCKADDR_TLS_PRIORITY", "rdmacm"),
		(char *)"tcp"));
	/* the settings allow another port alone */
	environment("PATH=/bin:/usr/bin DASK_UCX__INFINIBAND=True "
		    "WEFT_IB_DEVICES=mlx5_1");
	expect_mapped(WEFT_UCXENV_RUN, "UCX_TLS=rc,weft_shm,weft_tcp");
#endif
	/* in sysfs, but its device node is not in this container */
	shell("echo mlx5_0 >class/infiniband_verbs/uverbs99/ibdev");
	environment(asked);
	expect_mapped(WEFT_UCXENV_LOADED, rc);
	cr_expect(not(weft_is_requested("weft_ib")));
	folder_end();
}

/* ucxx says TLS=tcp for Dask's flag, whatever the environment says by then. */
Test(ucxenv, option_of_ucxx_is_replaced)
{
	environment(NEW "TCP=True");
	cr_expect(eq(str, (char *)weft_ucxenv_option("TLS", "tcp"),
		     (char *)"weft_shm,weft_tcp"));
	setenv("UCX_TLS", "weft_shm,weft_tcp", 1); /* as we ourselves would */
	cr_expect(eq(str, (char *)weft_ucxenv_option("TLS", "tcp"),
		     (char *)"weft_shm,weft_tcp"));
	cr_expect(
		eq(ptr, (void *)weft_ucxenv_option("RNDV_THRESH", "1"), NULL));
	cr_expect(eq(ptr, (void *)weft_ucxenv_option("TLS", "weft_tcp,sm"),
		     NULL));
	setenv("UCX_TLS", "tcp", 1);
	cr_expect(eq(ptr, (void *)weft_ucxenv_option("TLS", "tcp"), NULL));
	environment("");
	cr_expect(eq(ptr, (void *)weft_ucxenv_option("TLS", "tcp"), NULL));
}

/* UCX would look for a device of that name. */
Test(ucxenv, auto_becomes_all_for_ucx)
{
	static const char *const asking[] = {
		"UCX_TLS=weft_ib,weft_tcp",
		OLD "TCP=True",
		"WEFT_UCX=on",
	};
	static const char *const others[] = {
		"",
		"UCX_TLS=tcp",
		"UCX_TLS=^weft_tcp",
		"WEFT_UCX=off UCX_TLS=weft_tcp",
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(asking); i++) {
		environment(asking[i]);
		cr_expect(eq(str,
			     (char *)weft_ucxenv_option("NET_DEVICES", "auto"),
			     (char *)"all"),
			  "[%s]", asking[i]);
		cr_expect(eq(ptr,
			     (void *)weft_ucxenv_option("NET_DEVICES", "eth0"),
			     NULL));
	}
	for (i = 0; i < ARRAY_SIZE(others); i++) {
		environment(others[i]);
		cr_expect(eq(ptr,
			     (void *)weft_ucxenv_option("NET_DEVICES", "auto"),
			     NULL),
			  "[%s]", others[i]);
	}
}
