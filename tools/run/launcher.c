/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/run/launcher.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/parse.h"
#include "util/util.h"

/*
 * Innermost first: torchrun runs in tasks of the others, and MPI's launchers in
 * jobs of the batch systems, whose own variables they pass on.
 */
static const struct {
	const char *local_rank;
	const char *needs; /* counts only if this is set, too; NULL: always */
} launchers[] = {
	/* torchrun; scripts set LOCAL_RANK for other purposes */
	{ "LOCAL_RANK", "TORCHELASTIC_RUN_ID" },
	{ "OMPI_COMM_WORLD_LOCAL_RANK", NULL }, /* Open MPI, jsrun */
	{ "PALS_LOCAL_RANKID", NULL },		/* HPE's mpiexec */
	{ "MPI_LOCALRANKID", NULL },		/* Hydra: MPICH, Intel MPI */
	{ "MV2_COMM_WORLD_LOCAL_RANK", NULL },	/* MVAPICH */
	{ "PMI_LOCAL_RANK", NULL },		/* Cray MPICH */
	{ "JSM_NAMESPACE_LOCAL_RANK", NULL },	/* jsrun */
	{ "FLUX_TASK_LOCAL_ID", NULL },
	/* in a batch script, which is no step, it is always 0 */
	{ "SLURM_LOCALID", "SLURM_STEP_ID" },
};

int launcher_find(struct launcher_task *task, char why[LAUNCHER_WHY_LEN])
{
	const char *value;
	uint64_t rank;
	size_t i;

	*task = (struct launcher_task){ 0 };
	for (i = 0; i < ARRAY_SIZE(launchers); i++) {
		value = getenv(launchers[i].local_rank);
		if (!value ||
		    (launchers[i].needs && !getenv(launchers[i].needs)))
			continue;
		if (weft_parse_u64(value, 0, UINT16_MAX, &rank)) {
			snprintf(why, LAUNCHER_WHY_LEN,
				 "%s='%.32s' is not a local rank",
				 launchers[i].local_rank, value);
			return -EINVAL;
		}
		task->variable = launchers[i].local_rank;
		task->local_rank = (unsigned int)rank;
		return 0;
	}
	return 0;
}

/* The entries of @visible, CUDA_VISIBLE_DEVICES. */
static unsigned int split_visible(const char *visible,
				  char names[][LAUNCHER_GPU_LEN])
{
	unsigned int n = 0;
	size_t len;

	while (*visible && n < WEFT_GPUS_MAX) {
		len = strcspn(visible, ",");
		snprintf(names[n++], LAUNCHER_GPU_LEN, "%.*s", (int)len,
			 visible);
		visible += len;
		visible += *visible == ',';
	}
	return n;
}

/* UUIDs by PCI address, or -ENODEV. */
static int list_uuids(char names[][LAUNCHER_GPU_LEN],
		      char why[LAUNCHER_WHY_LEN])
{
	struct weft_gpus g;
	unsigned int i;
	int n = 0;

	weft_gpus_list(&g);
	for (i = 0; i < g.n; i++) {
		if (!g.gpu[i].here || !*g.gpu[i].uuid)
			continue;
		if (g.gpu[i].mig) {
			snprintf(
				why, LAUNCHER_WHY_LEN,
				"GPU %s is divided (MIG); set CUDA_VISIBLE_DEVICES to an instance ('nvidia-smi -L' lists them)",
				g.gpu[i].busid);
			return -ENODEV;
		}
		snprintf(names[n++], LAUNCHER_GPU_LEN, "%s", g.gpu[i].uuid);
	}
	if (!n)
		snprintf(why, LAUNCHER_WHY_LEN, "no GPU to choose from: %s",
			 g.why ? g.why : "the driver shows none here");
	return n ? n : -ENODEV;
}

int launcher_choose_gpus(const struct launcher_task *task, unsigned int count,
			 struct launcher_gpus *choice,
			 char why[LAUNCHER_WHY_LEN])
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	const unsigned int first = task->local_rank * count;
	char names[WEFT_GPUS_MAX][LAUNCHER_GPU_LEN], range[32];
	unsigned int i, n;
	size_t len = 0;
	int found;

	*choice->list = '\0';
	found = visible ? (int)split_visible(visible, names)
			: list_uuids(names, why);
	if (found < 0)
		return found;
	n = (unsigned int)found;
	/* the launcher has chosen, or the container has a task's alone */
	if (visible ? n <= count : n == count)
		return 0;
	if (count == 1)
		snprintf(range, sizeof(range), "GPU %u", first);
	else
		snprintf(range, sizeof(range), "GPUs %u to %u", first,
			 first + count - 1);
	if (first + count > n) {
		snprintf(
			why, LAUNCHER_WHY_LEN,
			"local rank %u (%s) would get %s, but %s %u here, counted from 0; start fewer tasks on a host, or set each task's CUDA_VISIBLE_DEVICES yourself",
			task->local_rank, task->variable, range,
			visible ? "CUDA_VISIBLE_DEVICES names"
				: "the driver shows",
			n);
		return -ENODEV;
	}
	snprintf(choice->reason, sizeof(choice->reason), "%s %s", range,
		 visible ? "of CUDA_VISIBLE_DEVICES, counted from 0"
			 : "as nvidia-smi counts");
	for (i = first; i < first + count; i++)
		len += (size_t)snprintf(choice->list + len,
					sizeof(choice->list) - len, "%s%s",
					len ? "," : "", names[i]);
	return 0;
}

void launcher_read_cpus(char cpus[LAUNCHER_CPUS_LEN])
{
	static const char key[] = "Cpus_allowed_list:\t"; /* proc(5) */
	FILE *f = fopen("/proc/self/status", "re");
	char line[LAUNCHER_CPUS_LEN + sizeof(key)];

	*cpus = '\0';
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, sizeof(key) - 1))
			snprintf(cpus, LAUNCHER_CPUS_LEN, "%.*s",
				 (int)strcspn(line + sizeof(key) - 1, "\n"),
				 line + sizeof(key) - 1);
	if (f)
		fclose(f);
}
