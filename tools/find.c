/* SPDX-License-Identifier: BSD-3-Clause */
/* Find weft's libraries, and the UCX and NCCL that programs load. */
#include <dlfcn.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/tool.h"
#include "util/clock.h"
#include "util/util.h"

/* The configured libdir as seen from bindir: "../lib/", also in a copy. */
static void make_relative(char *to, size_t len)
{
	static const char bin[] = WEFT_BINDIR "/", lib[] = WEFT_LIBDIR "/";
	size_t i, common = 0, at = 0;

	for (i = 0; bin[i] && bin[i] == lib[i]; i++)
		if (bin[i] == '/')
			common = i + 1;
	*to = '\0';
	for (i = common; bin[i] && at < len; i++)
		if (bin[i] == '/')
			at += (size_t)snprintf(to + at, len - at, "../");
	if (at < len)
		snprintf(to + at, len - at, "%s", lib + common);
}

/* In a build tree, where libtool's .libs has no ucx/. */
static bool find_built(const char *self, const char *file, char *real)
{
	static const char *const near[] = { "../ucx_tl/.libs/",
					    "../nccl_net/.libs/" };
	const char *base = strrchr(file, '/');
	const size_t len = strlen(self);
	char try[PATH_MAX + 64];
	size_t i;

	if (len < 7 || strcmp(self + len - 7, "/tools/"))
		return false;
	for (i = 0; i < ARRAY_SIZE(near); i++) {
		snprintf(try, sizeof(try), "%s%s%s", self, near[i],
			 base ? base + 1 : file);
		if (realpath(try, real))
			return true;
	}
	return false;
}

/*
 * A copied program does not use the libraries of the prefix that it was built
 * for.
 */
static bool find_installed(const char *self, const char *file, char *real)
{
	char try[2 * PATH_MAX + 64], bin[PATH_MAX], relative[PATH_MAX];
	const char *const near[] = { relative, "../lib/", "../lib64/" };
	size_t i;

	if (realpath(WEFT_BINDIR, bin) && !strncmp(bin, self, strlen(bin)) &&
	    !strcmp(self + strlen(bin), "/")) {
		snprintf(try, sizeof(try), "%s/%s", WEFT_LIBDIR, file);
		if (realpath(try, real))
			return true;
	}
	make_relative(relative, sizeof(relative));
	for (i = 0; i < ARRAY_SIZE(near); i++) {
		snprintf(try, sizeof(try), "%s%s%s", self, near[i], file);
		if (realpath(try, real))
			return true;
	}
	return false;
}

/* With a final slash.  A chroot may have no /proc. */
static bool get_own_folder(char self[PATH_MAX])
{
	const char *started_as = (const char *)getauxval(AT_EXECFN);

	if (!realpath("/proc/self/exe", self) &&
	    (!started_as || !realpath(started_as, self)))
		return false;
	strrchr(self, '/')[1] = '\0';
	return true;
}

bool tool_find(const char *file, char path[TOOL_PATH_MAX])
{
	char self[PATH_MAX], real[PATH_MAX];

	if (!get_own_folder(self))
		return false;
	return (find_built(self, file, real) ||
		find_installed(self, file, real)) &&
	       snprintf(path, TOOL_PATH_MAX, "%s", real) < TOOL_PATH_MAX;
}

/* A library that programs have, and how it says which it is. */
struct kind {
	const char *package; /* Python's, with the library in lib/ */
	const char *file;
	const char *symbol;
	void (*ask)(void *symbol, unsigned int version[3]);
};

static void ask_ucx(void *symbol, unsigned int version[3])
{
	void (*ask)(unsigned int *, unsigned int *, unsigned int *);

	ask = (void (*)(unsigned int *, unsigned int *, unsigned int *))symbol;
	ask(&version[0], &version[1], &version[2]);
}

static void ask_nccl(void *symbol, unsigned int version[3])
{
	int (*ask)(int *) = (int (*)(int *))symbol;
	int n = 0;

	/* as it numbers itself since 2.9 */
	if (!ask(&n)) {
		version[0] = (unsigned int)n / 10000;
		version[1] = (unsigned int)n / 100 % 100;
		version[2] = (unsigned int)n % 100;
	}
}

static const struct kind ucx_kind = {
	.package = "libucx",
	.file = "libucp.so.0",
	.symbol = "ucp_get_version",
	.ask = ask_ucx,
};

static const struct kind nccl_kind = {
	.package = "nvidia.nccl",
	.file = "libnccl.so.2",
	.symbol = "ncclGetVersion",
	.ask = ask_nccl,
};

void tool_answer(int out, const void *answer, size_t len)
{
	/* no destructors: of what, is not known */
	_exit(write(out, answer, len) == (ssize_t)len ? 0 : 1);
}

static void probe_library(const void *about, const char *name, int out)
{
	const struct kind *kind = about;
	struct tool_library l = { 0 };
	void *handle, *symbol;
	Dl_info info;

	setenv("UCX_LOG_LEVEL", "fatal", 1);
	handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
	symbol = handle ? dlsym(handle, kind->symbol) : NULL;
	if (symbol) {
		kind->ask(symbol, l.version);
		l.found = true;
		if (dladdr(symbol, &info))
			snprintf(l.path, sizeof(l.path), "%s", info.dli_fname);
	} else {
		snprintf(l.why, sizeof(l.why), "%s",
			 dlerror() ?: "it does not say its version");
	}
	tool_answer(out, &l, sizeof(l));
}

/* What the child writes into @fd until it ends, or for so long. */
static size_t read_child(pid_t pid, int fd, void *buf, size_t len)
{
	const uint64_t end = weft_now_ms() + TOOL_CHILD_MS;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t now;
	size_t have = 0;
	ssize_t n = 1;

	while (have < len && n > 0 && (now = weft_now_ms()) < end) {
		if (poll(&p, 1, (int)(end - now)) <= 0)
			continue;
		n = read(fd, (char *)buf + have, len - have);
		have += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	kill(pid, SIGKILL);
	/* do not wait for one that a driver holds in the kernel */
	while (!waitpid(pid, NULL, WNOHANG) && weft_now_ms() < end)
		usleep(1000);
	return have;
}

size_t
tool_ask_child(void (*probe)(const void *about, const char *name, int out),
	       const void *about, const char *name, void *answer, size_t len)
{
	int fds[2];
	pid_t pid;

	if (pipe(fds))
		return 0;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		close(fds[0]);
		if (freopen("/dev/null", "w", stderr) &&
		    freopen("/dev/null", "w", stdout))
			probe(about, name, fds[1]);
		_exit(1);
	}
	close(fds[1]);
	if (pid > 0)
		return read_child(pid, fds[0], answer, len);
	close(fds[0]);
	return 0;
}

static void run_probe(const struct kind *kind, const char *name,
		      struct tool_library *l)
{
	struct tool_library got;

	if (tool_ask_child(probe_library, kind, name, &got, sizeof(got)) !=
	    sizeof(got)) {
		snprintf(l->why, sizeof(l->why), "'%.200s' crashes when loaded",
			 name);
		return;
	}
	l->found = got.found;
	memcpy(l->version, got.version, sizeof(got.version));
	if (got.found)
		memcpy(l->path, got.path, sizeof(l->path));
	else
		memcpy(l->why, got.why, sizeof(l->why));
}

/* An NCCL network plugin; calls none of its functions. */
static void probe_plugin(const void *nothing, const char *name, int out)
{
	char symbol[32], why[TOOL_WHY_MAX] = "";
	const char *const *plugin = NULL;
	void *handle;

	handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		snprintf(why, sizeof(why), "%s", dlerror());
	for (int v = 12; handle && !plugin && v >= 6; v--) {
		snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", v);
		plugin = dlsym(handle, symbol);
	}
	/* in every version the name comes first */
	if (handle && (!plugin || strcmp(*plugin, "weft")))
		snprintf(why, sizeof(why), "it is not weft's network plugin");
	tool_answer(out, why, sizeof(why));
}

bool tool_probe_nccl(const char *name, char why[TOOL_WHY_MAX])
{
	snprintf(why, TOOL_WHY_MAX, "it crashes when loaded");
	return tool_ask_child(probe_plugin, NULL, name, why, TOOL_WHY_MAX) ==
		       TOOL_WHY_MAX &&
	       !*why;
}

/* What to run, and its argument. */
struct script {
	const char *code, *arg;
};

static void run_python(const void *about, const char *python, int out)
{
	const struct script *script = about;

	/* weft run would not set it for this Python */
	unsetenv("LD_PRELOAD");
	dup2(out, STDOUT_FILENO);
	execlp(python, python, "-c", script->code, script->arg, (char *)NULL);
}

bool tool_ask_python(const char *code, const char *arg,
		     char python[TOOL_PATH_MAX], char *out, size_t len)
{
	const char *venv = getenv("VIRTUAL_ENV");
	const struct script script = { code, arg };
	size_t n;

	if (venv && *venv)
		snprintf(python, TOOL_PATH_MAX, "%s/bin/python", venv);
	else
		snprintf(python, TOOL_PATH_MAX, "python3");
	n = tool_ask_child(run_python, &script, python, out, len - 1);
	out[n] = '\0';
	return n;
}

/* Ask Python itself: only it knows its search path. */
static void find_python(const struct kind *kind, struct tool_library *l)
{
	static const char code[] =
		"import importlib.util as u, sys\n"
		"s = u.find_spec(sys.argv[1])\n"
		"if s: print(list(s.submodule_search_locations)[0], end='')\n";
	char python[TOOL_PATH_MAX], folder[TOOL_PATH_MAX - 64],
		lib[TOOL_PATH_MAX];

	l->who = "Python";
	if (!tool_ask_python(code, kind->package, python, folder,
			     sizeof(folder))) {
		snprintf(l->why, sizeof(l->why),
			 "no %s package (pip's) in %.200s", kind->package,
			 python);
		return;
	}
	snprintf(l->why, sizeof(l->why), "the %s package of %.200s",
		 kind->package, python);
	snprintf(lib, sizeof(lib), "%s/lib/%s", folder, kind->file);
	/* without the last number */
	if (access(lib, F_OK))
		*strrchr(lib, '.') = '\0';
	run_probe(kind, lib, l);
}

static bool find_conda(const struct kind *kind, struct tool_library *l)
{
	const char *prefix = getenv("CONDA_PREFIX");
	char lib[TOOL_PATH_MAX];

	if (!prefix || !*prefix)
		return false;
	l->who = "conda";
	snprintf(lib, sizeof(lib), "%s/lib/%s", prefix, kind->file);
	if (access(lib, F_OK)) {
		snprintf(l->why, sizeof(l->why), "no %s in %.200s/lib",
			 kind->file, prefix);
		return true;
	}
	snprintf(l->why, sizeof(l->why), "CONDA_PREFIX");
	run_probe(kind, lib, l);
	return true;
}

static size_t find_all(const struct kind *kind,
		       struct tool_library out[TOOL_FOUND_MAX])
{
	const char *path = getenv("LD_LIBRARY_PATH");
	size_t n = 0;

	memset(out, 0, TOOL_FOUND_MAX * sizeof(*out));
	find_python(kind, &out[n++]);
	n += find_conda(kind, &out[n]);
	out[n].who = "programs";
	snprintf(out[n].why, sizeof(out[n].why),
		 "the dynamic linker's choice%s",
		 path && *path ? ", LD_LIBRARY_PATH first" : "");
	run_probe(kind, kind->file, &out[n++]);
	return n;
}

size_t tool_find_ucx(struct tool_library out[TOOL_FOUND_MAX])
{
	return find_all(&ucx_kind, out);
}

size_t tool_find_nccl(struct tool_library out[TOOL_FOUND_MAX])
{
	return find_all(&nccl_kind, out);
}
