/* SPDX-License-Identifier: BSD-3-Clause */
/* weft info: other installations of weft, and jobs that run an old one. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/tool.h"

/*
 * Is @path the script by which a Python environment starts @self?  pip puts it
 * into bin/, and the wheel's files below the same prefix.
 */
static bool is_script_of(const char *path, const char *self)
{
	const char *slash = strstr(path, "/bin/weft");
	FILE *file;
	bool script;

	if (!slash || strncmp(path, self, (size_t)(slash + 1 - path)) ||
	    !strstr(self, "-packages/weft/bin/"))
		return false;
	file = fopen(path, "re");
	if (!file)
		return false;
	script = getc(file) == '#' && getc(file) == '!';
	fclose(file);
	return script;
}

/* Is @path this program, or what pip has installed to start it? */
static bool is_this(const char *path)
{
	char self[PATH_MAX];

	return realpath("/proc/self/exe", self) &&
	       (!strcmp(path, self) || is_script_of(path, self));
}

static void print_others(void)
{
	const char *at = getenv("PATH");
	char try[PATH_MAX + 8], path[PATH_MAX], last[PATH_MAX] = "";
	size_t len;

	for (; at && *at; at += len + !!at[len]) {
		len = strcspn(at, ":");
		if (len >= PATH_MAX)
			continue;
		snprintf(try, sizeof(try), "%.*s/weft", (int)len, at);
		if (access(try, X_OK) || !realpath(try, path) ||
		    is_this(path) || !strcmp(path, last))
			continue;
		printf("  PATH has another weft: '%s'; it has libraries of its own, so use one of them\n",
		       try);
		strcpy(last, path);
	}
}

/* Put one of weft's libraries that was replaced or removed into @library. */
static bool has_deleted(const char *pid, char library[PATH_MAX])
{
	static const char deleted[] = " (deleted)\n";
	char line[PATH_MAX + 128];
	FILE *maps;
	const char *base;
	size_t len;
	bool found = false;

	snprintf(line, sizeof(line), "/proc/%.20s/maps", pid);
	maps = fopen(line, "re");
	if (!maps)
		return false;
	while (!found && fgets(line, sizeof(line), maps)) {
		len = strlen(line);
		base = strrchr(line, '/');
		if (!base || len < sizeof(deleted) ||
		    strcmp(line + len - sizeof(deleted) + 1, deleted))
			continue;
		line[len - sizeof(deleted) + 1] = '\0';
		found = !strcmp(base, "/libuct_weft.so") ||
			!strcmp(base, "/libweft_preload.so") ||
			!strcmp(base, "/libnccl-net-weft.so");
		snprintf(library, PATH_MAX, "%s", strchr(line, '/'));
	}
	fclose(maps);
	return found;
}

static void print_old_jobs(void)
{
	char library[PATH_MAX];
	struct dirent *d;
	DIR *proc = opendir("/proc");

	if (!proc)
		return;
	while ((d = readdir(proc)))
		if (isdigit(d->d_name[0]) && has_deleted(d->d_name, library))
			printf("  process %s still runs the weft that was '%s' before: restart it to use the one that is installed now\n",
			       d->d_name, library);
	closedir(proc);
}

void info_install(void)
{
	print_others();
	print_old_jobs();
}
