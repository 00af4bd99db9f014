/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft info: the GPUs, and what would carry memory between each two of them.
 * The driver is asked in a child: it may take its time or never answer, and
 * what it keeps open goes with the child.  No CUDA context is made.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bootstrap/gpu.h"
#include "bootstrap/pci.h"
#include "bootstrap/rundir.h"
#include "tools/tool.h"
#include "util/clock.h"
#include "util/cuda.h"
#include "util/log.h"

#define ANSWER_MS	900

/* What CUDA says, of the GPUs that it shows. */
struct driver {
	char why[256];			/* "": it has answered */
	unsigned int n;
	struct {
		char busid[WEFT_BUSID_LEN];
		bool vmm, fd, mps;
	} gpu[WEFT_GPUS_MAX];
};

static struct {
	pid_t pid;
	int fd;				/* -1: there is no child */
	uint64_t end_ms;
	struct weft_gpus gpus;
	struct driver driver;
} ask;

/* ---- the child ----------------------------------------------------------- */

/* The first thing that went wrong is the cause. */
static void catch(void *arg, enum weft_level level, const char *file, int line,
		  const char *text)
{
	struct driver *d = arg;

	(void)level;
	(void)file;
	(void)line;
	if (!*d->why)
		snprintf(d->why, sizeof(d->why), "%s", text);
}

static bool attribute(const struct weft_cuda *cu, int attr, int dev)
{
	int v = 0;

	return !cu->device_attr(&v, attr, dev) && v;
}

static void ask_gpu(const struct weft_cuda *cu, struct driver *d, int dev)
{
	int domain = 0, bus = 0, device = 0, mps;
	const char *folder;

	cu->device_attr(&domain, WEFT_CU_DEVICE_PCI_DOMAIN, dev);
	cu->device_attr(&bus, WEFT_CU_DEVICE_PCI_BUS, dev);
	cu->device_attr(&device, WEFT_CU_DEVICE_PCI_DEVICE, dev);
	weft_gpu_busid(d->gpu[d->n].busid, domain, bus, device);
	d->gpu[d->n].vmm = attribute(cu, WEFT_CU_DEVICE_VMM, dev);
	d->gpu[d->n].fd = attribute(cu, WEFT_CU_DEVICE_POSIX_FD, dev);
	/* as the device judges it (devices/nvlink/nvl_share.c) */
	d->gpu[d->n].mps = cu->device_attr(&mps, WEFT_CU_DEVICE_MPS, dev) ?
				   weft_gpu_mps(&folder) : mps;
	d->n++;
}

static void ask_driver(struct driver *d)
{
	struct weft_cuda_scope s;
	int n = 0, i, dev;

	/* what a program hides from itself it can import all the same */
	unsetenv("CUDA_VISIBLE_DEVICES");
	weft_log_set_sink(catch, d);
	if (weft_cuda_init() || weft_cuda_enter(&s, NULL))
		return;
	if (s.cu->device_count(&n))
		n = 0;
	for (i = 0; i < n && i < WEFT_GPUS_MAX; i++)
		if (!s.cu->device_get(&dev, i))
			ask_gpu(s.cu, d, dev);
	weft_cuda_leave(&s);
}

static void __attribute__((noreturn)) child(int out)
{
	const char *why;

	weft_gpus_find(&ask.gpus);
	why = ask.gpus.why;
	ask.gpus.why = NULL;
	if (write(out, &ask.gpus, sizeof(ask.gpus)) != sizeof(ask.gpus))
		_exit(1);
	if (why)
		snprintf(ask.driver.why, sizeof(ask.driver.why), "%s", why);
	else
		ask_driver(&ask.driver);
	if (write(out, &ask.driver, sizeof(ask.driver)) != sizeof(ask.driver))
		_exit(1);
	_exit(0);
}

void info_gpu_begin(void)
{
	int fds[2];

	ask.fd = -1;
	ask.end_ms = weft_now_ms() + ANSWER_MS;
	if (pipe(fds))
		return;
	fflush(stdout);
	ask.pid = fork();
	if (!ask.pid) {
		close(fds[0]);
		child(fds[1]);
	}
	close(fds[1]);
	if (ask.pid > 0)
		ask.fd = fds[0];
	else
		close(fds[0]);
}

/* ---- its answer ---------------------------------------------------------- */

static bool receive(void *buf, size_t len)
{
	struct pollfd p = { .fd = ask.fd, .events = POLLIN };
	size_t have = 0;
	uint64_t now;
	ssize_t n;

	while (have < len) {
		now = weft_now_ms();
		if (poll(&p, 1, now < ask.end_ms ?
				(int)(ask.end_ms - now) : 0) <= 0)
			return false;
		n = read(ask.fd, (char *)buf + have, len - have);
		if (n <= 0)
			return false;
		have += (size_t)n;
	}
	return true;
}

/* True: at least the list of GPUs is there. */
static bool collect(void)
{
	struct driver *d = &ask.driver;
	bool list;
	int status;

	if (ask.fd < 0)
		return false;
	list = receive(&ask.gpus, sizeof(ask.gpus));
	if (!list || !receive(d, sizeof(*d))) {
		d->n = 0;
		snprintf(d->why, sizeof(d->why), "the driver did not answer "
			 "within %g s", ANSWER_MS / 1000.);
	}
	close(ask.fd);
	/* a driver that hangs in the kernel would not let it go */
	kill(ask.pid, SIGKILL);
	waitpid(ask.pid, &status, WNOHANG);
	return list;
}

static int shown(const char *busid)
{
	unsigned int i;

	for (i = 0; i < ask.driver.n; i++)
		if (!strcasecmp(ask.driver.gpu[i].busid, busid))
			return (int)i;
	return -1;
}

/* Why memory of @g cannot be shared with another process; false: it can. */
static bool unshared(const struct weft_gpu *g, char *why, size_t len)
{
	const int i = shown(g->busid);

	if (!g->here)
		snprintf(why, len, "the device node of %s is not here",
			 g->busid);
	else if (g->mig)
		snprintf(why, len, "%s is divided into instances (MIG)",
			 g->busid);
	else if (i < 0)
		snprintf(why, len, "CUDA does not show %s", g->busid);
	else if (ask.driver.gpu[i].mps)
		snprintf(why, len, "%s is used through MPS", g->busid);
	else if (!ask.driver.gpu[i].vmm || !ask.driver.gpu[i].fd)
		snprintf(why, len, "the driver cannot pass memory of %s on as "
			 "a descriptor", g->busid);
	else
		return false;
	return true;
}

static void print_wire(unsigned int a, unsigned int b)
{
	const struct weft_gpu_pair *p = &ask.gpus.pair[a][b];
	struct weft_pci one, other;

	if (p->nvlink) {
		printf("NVLink, %u links; ", p->links);
		return;
	}
	weft_pci_find_busid(ask.gpus.gpu[a].busid, &one);
	weft_pci_find_busid(ask.gpus.gpu[b].busid, &other);
	printf("%s (%s); ", p->known ? "PCIe" : "wire not known",
	       weft_distance_name(weft_pci_distance(&one, &other)));
}

static void print_pair(unsigned int a, unsigned int b)
{
	const struct weft_gpus *g = &ask.gpus;
	char why[300];
	bool no;

	printf("  %s - %s  ", g->gpu[a].busid, g->gpu[b].busid);
	print_wire(a, b);
	if (*ask.driver.why) {
		printf("importable or not is not known: %s\n",
		       ask.driver.why);
		return;
	}
	no = unshared(&g->gpu[a], why, sizeof(why)) ||
	     unshared(&g->gpu[b], why, sizeof(why));
	if (!no && g->pair[a][b].known && !g->pair[a][b].reads) {
		no = true;
		snprintf(why, sizeof(why), "neither can read the other's "
			 "memory");
	}
	if (no)
		printf("not importable: %s;\n    a ring of host memory\n", why);
	else
		puts("importable; a ring of GPU memory");
}

static void print_folder(void)
{
	char path[TOOL_PATH_MAX];
	const int err = weft_rundir_check(path, sizeof(path));

	puts("  Rings join processes that share a network namespace or the run "
	     "folder\n  (WEFT_RUN_DIR); between others it is TCP.");
	if (err)
		printf("  run folder: none; '%s' %s%s\n", path,
		       err == -EPERM ? "is not of this user alone" :
				       "cannot be used: ",
		       err == -EPERM ? "" : strerror(-err));
	else
		printf("  run folder: %s\n", path);
}

void info_gpu(void)
{
	const struct weft_gpus *g = &ask.gpus;
	unsigned int a, b;

	puts("\nGPUs, and what moves their memory between processes of this "
	     "host");
	if (!collect()) {
		printf("  not known: %s\n", ask.fd < 0 ?
		       "no process could be started to ask" : ask.driver.why);
		return;
	}
	for (a = 0; a < g->n && !g->gpu[a].here; a++)
		;
	if (a == g->n) {
		if (g->n)
			printf("  %u in this host, none for this process: %s\n",
			       g->n, *ask.driver.why ? ask.driver.why :
			       "their device nodes are not here");
		else
			puts("  none");
		return;
	}
	for (a = 0; a < g->n; a++)
		printf("  %s  %s%s\n", g->gpu[a].busid,
		       g->gpu[a].here ? g->gpu[a].name :
					"its device node is not here",
		       g->gpu[a].mig ? ", divided into instances (MIG)" : "");
	for (a = 0; a < g->n; a++)
		for (b = a + 1; b < g->n; b++)
			print_pair(a, b);
	print_folder();
}
