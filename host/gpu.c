/* SPDX-License-Identifier: BSD-3-Clause */
#include "host/gpu.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "host/pci.h"
#include "util/drivers/cuda.h"
#include "util/drivers/nvml.h"
#include "util/file.h"
#include "util/parse.h"
#include "util/util.h"

#define NVIDIA	      0x10deu
#define CLASS_DISPLAY 0x03u

/* ---- sysfs --------------------------------------------------------------- */

/* "0x10de"; 0: no such file */
static uint64_t read_number(const char *busid, const char *what)
{
	char path[PATH_MAX], text[32];
	uint64_t n = 0;

	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/%s",
		 weft_sysfs_root, busid, what);
	weft_file_read(path, text, sizeof(text));
	weft_parse_u64(text, 0, UINT32_MAX, &n);
	return n;
}

static struct weft_gpu *add_gpu(struct weft_gpus *g, const char *busid)
{
	unsigned int i;

	for (i = 0; i < g->n; i++)
		if (!strcasecmp(g->gpu[i].busid, busid))
			return &g->gpu[i];
	if (g->n == WEFT_GPUS_MAX)
		return NULL;
	snprintf(g->gpu[g->n].busid, WEFT_BUSID_LEN, "%s", busid);
	return &g->gpu[g->n++];
}

static int compare_busids(const void *a, const void *b)
{
	const struct weft_gpu *x = a, *y = b;

	return strcasecmp(x->busid, y->busid);
}

/* NVIDIA's display controllers (PCI class 03): not its switches and NICs. */
static void read_sysfs(struct weft_gpus *g)
{
	char path[PATH_MAX];
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "%s/bus/pci/devices", weft_sysfs_root);
	d = opendir(path);
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.' && strlen(e->d_name) < WEFT_BUSID_LEN &&
		    read_number(e->d_name, "vendor") == NVIDIA &&
		    read_number(e->d_name, "class") >> 16 == CLASS_DISPLAY)
			add_gpu(g, e->d_name);
	if (d)
		closedir(d);
}

unsigned int weft_gpus_on_pci(void)
{
	struct weft_gpus g = { 0 };

	read_sysfs(&g);
	return g.n;
}

/* ---- the driver ---------------------------------------------------------- */

static void format_busid(const struct weft_nvml_pci *pci,
			 char busid[WEFT_BUSID_LEN])
{
	snprintf(busid, WEFT_BUSID_LEN, "%04x:%02x:%02x.0",
		 pci->domain & 0xffffff, pci->bus & 0xff, pci->device & 0xff);
}

static bool is_divided(const struct weft_nvml *nvml, void *dev)
{
	unsigned int now = 0, pending;

	/* fails on GPUs without MIG */
	return !nvml->mig_mode(dev, &now, &pending) && now;
}

static void query_driver(struct weft_gpus *g, const struct weft_nvml *nvml)
{
	char busid[WEFT_BUSID_LEN], name[WEFT_NVML_NAME_LEN];
	char uuid[WEFT_NVML_UUID_LEN];
	struct weft_nvml_pci pci;
	struct weft_gpu *gpu;
	unsigned int n = 0, i;
	void *dev;

	if (nvml->count(&n))
		n = 0;
	for (i = 0; i < n; i++) {
		/* no permission: the container lacks the device node */
		if (nvml->by_index(i, &dev) || nvml->pci(dev, &pci))
			continue;
		format_busid(&pci, busid);
		gpu = add_gpu(g, busid);
		if (!gpu)
			return;
		gpu->here = true;
		gpu->mig = is_divided(nvml, dev);
		if (!nvml->name(dev, name, sizeof(name)))
			snprintf(gpu->name, sizeof(gpu->name), "%.63s", name);
		if (!nvml->uuid(dev, uuid, sizeof(uuid)))
			snprintf(gpu->uuid, sizeof(gpu->uuid), "%.47s", uuid);
	}
}

/* NVLinks from @dev to @busid; if none is direct, all that are active. */
static unsigned int count_links(const struct weft_nvml *nvml, void *dev,
				const char *busid)
{
	unsigned int link, all = 0, straight = 0;
	char remote[WEFT_BUSID_LEN];
	struct weft_nvml_pci pci;
	int active;

	for (link = 0; link < WEFT_NVML_MAX_LINKS; link++) {
		if (nvml->link_state(dev, link, &active) || !active)
			continue;
		all++;
		if (nvml->link_remote(dev, link, &pci))
			continue;
		format_busid(&pci, remote);
		straight += !strcasecmp(remote, busid);
	}
	return straight ? straight : all;
}

static void find_pair(const struct weft_nvml *nvml, struct weft_gpus *g,
		      unsigned int a, unsigned int b)
{
	struct weft_gpu_pair *p = &g->pair[a][b];
	void *one, *other;
	int status;

	if (!g->gpu[a].here || !g->gpu[b].here ||
	    nvml->by_busid(g->gpu[a].busid, &one) ||
	    nvml->by_busid(g->gpu[b].busid, &other) ||
	    nvml->p2p_status(one, other, WEFT_NVML_P2P_READ, &status))
		return;
	p->known = true;
	p->reads = status == WEFT_NVML_P2P_OK;
	if (!nvml->p2p_status(one, other, WEFT_NVML_P2P_NVLINK, &status) &&
	    status == WEFT_NVML_P2P_OK) {
		p->nvlink = true;
		p->links = count_links(nvml, one, g->gpu[b].busid);
	}
	g->pair[b][a] = *p;
}

/* NULL: the driver does not answer. */
static const struct weft_nvml *list_gpus(struct weft_gpus *g)
{
	const struct weft_nvml *nvml;

	memset(g, 0, sizeof(*g));
	read_sysfs(g);
	nvml = weft_nvml_open(&g->why);
	if (nvml)
		query_driver(g, nvml);
	qsort(g->gpu, g->n, sizeof(*g->gpu), compare_busids);
	return nvml;
}

void weft_gpus_list(struct weft_gpus *g)
{
	const struct weft_nvml *nvml = list_gpus(g);

	if (nvml)
		weft_nvml_close(nvml);
}

void weft_gpus_find(struct weft_gpus *g)
{
	const struct weft_nvml *nvml = list_gpus(g);
	unsigned int a, b;

	if (!nvml)
		return;
	for (a = 0; a < g->n; a++)
		for (b = a + 1; b < g->n; b++)
			find_pair(nvml, g, a, b);
	weft_nvml_close(nvml);
}

/* ---- this process's GPU -------------------------------------------------- */

bool weft_gpu_busid(const struct weft_cuda *cu, int dev,
		    char busid[WEFT_BUSID_LEN])
{
	int domain = 0, bus = 0, device = 0;
	struct weft_nvml_pci pci;
	const int r = cu->device_attr(&domain, WEFT_CU_DEVICE_PCI_DOMAIN, dev) |
		      cu->device_attr(&bus, WEFT_CU_DEVICE_PCI_BUS, dev) |
		      cu->device_attr(&device, WEFT_CU_DEVICE_PCI_DEVICE, dev);

	pci = (struct weft_nvml_pci){
		.domain = (unsigned int)domain,
		.bus = (unsigned int)bus,
		.device = (unsigned int)device,
	};
	format_busid(&pci, busid);
	return !r;
}

/* The GPU of the calling thread's context; false: it has none. */
static bool gpu_from_context(char busid[WEFT_BUSID_LEN], unsigned int *ordinal)
{
	struct weft_cuda_scope s;
	void *ctx = NULL;
	bool found;
	int dev;

	if (!weft_cuda() || weft_cuda_enter(&s, NULL))
		return false;
	found = !s.cu->ctx_current(&ctx) && ctx && !s.cu->ctx_device(&dev) &&
		weft_gpu_busid(s.cu, dev, busid);
	weft_cuda_leave(&s);
	if (found)
		*ordinal = (unsigned int)dev;
	return found;
}

/* If the driver does not answer, every GPU counts as visible. */
static bool gpu_is_visible(const struct weft_gpus *g, unsigned int i)
{
	return g->why || g->gpu[i].here;
}

/* The @wanted-th visible GPU, or the one whose UUID starts with @uuid. */
static const struct weft_gpu *pick_gpu(const struct weft_gpus *g,
				       uint64_t wanted, const char *uuid,
				       size_t len)
{
	unsigned int i;

	for (i = 0; i < g->n; i++)
		if (gpu_is_visible(g, i) &&
		    (uuid ? !strncasecmp(g->gpu[i].uuid, uuid, len)
			  : !wanted--))
			return &g->gpu[i];
	return NULL;
}

/*
 * "2,3,0", "GPU-5f3c", "MIG-GPU-5f3c.../1/0" (CUDA Programming Guide, "CUDA
 * Environment Variables"); "MIG-5f3c..." does not name the GPU.
 */
static const struct weft_gpu *find_first_visible(const struct weft_gpus *g,
						 const char *visible)
{
	const size_t len = strcspn(visible, ",/");
	char number[8];
	uint64_t n;

	if (!strncmp(visible, "GPU-", 4))
		return pick_gpu(g, 0, visible, len);
	if (!strncmp(visible, "MIG-GPU-", 8))
		return pick_gpu(g, 0, visible + 4, len - 4);
	snprintf(number, sizeof(number), "%.*s", (int)len, visible);
	return weft_parse_u64(number, 0, WEFT_GPUS_MAX, &n)
		       ? NULL
		       : pick_gpu(g, n, NULL, 0);
}

/* CUDA's device 0, if the environment determines it. */
static bool gpu_from_env(char busid[WEFT_BUSID_LEN])
{
	const char *visible = secure_getenv("CUDA_VISIBLE_DEVICES");
	const struct weft_gpu *gpu = NULL;
	struct weft_gpus g;

	weft_gpus_list(&g);
	if (visible)
		gpu = find_first_visible(&g, visible);
	else if (!pick_gpu(&g, 1, NULL, 0))
		gpu = pick_gpu(&g, 0, NULL, 0);
	if (gpu)
		memcpy(busid, gpu->busid, WEFT_BUSID_LEN);
	return gpu;
}

bool weft_gpu_of_process(struct weft_pci *pci, unsigned int *turn)
{
	char busid[WEFT_BUSID_LEN];
	struct weft_gpus g = { 0 };
	unsigned int i;

	*turn = 0;
	if (!gpu_from_context(busid, turn) && !gpu_from_env(busid))
		return false;
	read_sysfs(&g);
	qsort(g.gpu, g.n, sizeof(*g.gpu), compare_busids);
	for (i = 0; i < g.n; i++)
		if (!strcasecmp(g.gpu[i].busid, busid))
			*turn = i;
	weft_pci_find_busid(busid, pci);
	return true;
}

bool weft_gpu_mig(const char *busid)
{
	const struct weft_nvml *nvml;
	const char *why;
	bool yes = false;
	void *dev;

	nvml = weft_nvml_open(&why);
	if (!nvml)
		return false;
	yes = !nvml->by_busid(busid, &dev) && is_divided(nvml, dev);
	weft_nvml_close(nvml);
	return yes;
}

bool weft_gpus_divided(void)
{
	struct weft_gpus g;
	unsigned int i;

	weft_gpus_list(&g);
	for (i = 0; i < g.n && !g.gpu[i].mig; i++)
		;
	return i < g.n;
}

/* ---- MPS ----------------------------------------------------------------- */

/*
 * cuInit() connects to the control daemon's socket and does without MPS if
 * there is no daemon (nvidia-cuda-mps-control(1)).  The socket is in
 * CUDA_MPS_PIPE_DIRECTORY, else in /tmp/nvidia-mps
 * (docs.nvidia.com/deploy/mps, environment variables).  A real connection
 * would make the daemon start a server, so connect a datagram socket: if the
 * listening socket is alive, the kernel answers EPROTOTYPE, else ECONNREFUSED
 * (unix(7)).
 */
bool weft_gpu_mps(const char **folder)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	bool yes;
	int fd, n;

	*folder = secure_getenv("CUDA_MPS_PIPE_DIRECTORY");
	if (!*folder || !**folder)
		*folder = "/tmp/nvidia-mps";
	n = snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/control", *folder);
	if (n >= (int)sizeof(sa.sun_path))
		return false;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	yes = !connect(fd, (struct sockaddr *)&sa, sizeof(sa)) ||
	      errno == EPROTOTYPE;
	close(fd);
	return yes;
}
