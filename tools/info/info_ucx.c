/* SPDX-License-Identifier: BSD-3-Clause */
/* weft info: the UCX that programs load here, and whether weft is in it. */
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "settings/settings.h"
#include "tools/tool.h"
#include "ucx_tl/abi.h"
#include "util/drivers/cuda.h"

#define PRELOAD	     "libweft_preload.so"
#define PLUGINS_FROM 22u /* the first to read UCX_PLUGIN_PATH */

/* The file name in @path. */
static const char *get_basename(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int is_preload(struct dl_phdr_info *info, size_t size, void *path)
{
	if (strcmp(get_basename(info->dlpi_name), PRELOAD))
		return 0;
	snprintf(path, TOOL_PATH_MAX, "%s", info->dlpi_name);
	return 1;
}

static bool has_plugin(const char *folder, int len)
{
	char path[TOOL_PATH_MAX + 32];

	snprintf(path, sizeof(path), "%.*s/libuct_weft.so", len, folder);
	return !access(path, R_OK);
}

/* The dynamic linker does in programs what it did here. */
static bool is_preloaded(void)
{
	const char *given = getenv("LD_PRELOAD");
	char path[TOOL_PATH_MAX], own[TOOL_PATH_MAX];
	const bool here = tool_find(PRELOAD, own);
	size_t dir;

	printf("  LD_PRELOAD       ");
	if (dl_iterate_phdr(is_preload, path)) {
		dir = (size_t)(get_basename(path) - path);
		snprintf(path + dir, sizeof(path) - dir, "ucx");
		if (has_plugin(path, (int)strlen(path)) ||
		    has_plugin(path, (int)dir)) {
			printf("%.*s" PRELOAD ", set here\n", (int)dir, path);
			return true;
		}
		printf("libuct_weft.so is not in '%s': reinstall weft\n", path);
		return false;
	}
	if (given && strstr(given, PRELOAD))
		printf("the dynamic linker could not load '%s'%s", given,
		       here ? ";\n                   " : "\n");
	else if (!here)
		puts(PRELOAD " was not found: reinstall weft");
	if (here)
		printf("%s ('weft run' sets it)\n", own);
	return false;
}

/* Does a folder of UCX_PLUGIN_PATH have the plugin? */
static bool is_on_plugin_path(void)
{
	const char *given = getenv("UCX_PLUGIN_PATH"), *at;
	char own[TOOL_PATH_MAX];
	size_t len;

	printf("  UCX_PLUGIN_PATH  ");
	for (at = given; at && *at; at += len + !!at[len]) {
		len = strcspn(at, ":");
		if (!has_plugin(at, (int)len))
			continue;
		printf("%.*s, set here; read by UCX 1.%u and later\n", (int)len,
		       at, PLUGINS_FROM);
		return true;
	}
	if (given && *given)
		printf("libuct_weft.so is not in '%s'\n%19s", given, "");
	if (tool_find("ucx/libuct_weft.so", own))
		printf("%.*s, an alternative from UCX 1.%u on\n",
		       (int)(get_basename(own) - own - 1), own, PLUGINS_FROM);
	else
		puts("libuct_weft.so was not found: reinstall weft");
	return false;
}

static bool is_known(const struct tool_library *u)
{
	return u->version[0] == 1 && u->version[1] >= WEFT_UCX_MINOR_MIN &&
	       u->version[1] <= WEFT_UCX_MINOR_MAX;
}

static bool is_supported(const struct tool_library *u)
{
	return is_known(u) || weft_settings()->ucx_force;
}

static void print_unknown(const struct tool_library *u)
{
	printf("this weft supports 1.%d to 1.%d:\n            ",
	       WEFT_UCX_MINOR_MIN, WEFT_UCX_MINOR_MAX);
	if (u->version[0] == 1 && u->version[1] < WEFT_UCX_MINOR_MIN)
		puts("install a newer UCX");
	else
		printf("install a newer weft, or try WEFT_UCX_FORCE=%d at your own risk\n",
		       WEFT_UCX_MINOR_MAX);
}

/* How this UCX loads weft; NULL: it does not. */
static const char *get_entry(const struct tool_library *u, bool preload,
			     bool path)
{
	char folder[TOOL_PATH_MAX + 8];

	if (preload)
		return "LD_PRELOAD";
	if (u->version[1] < PLUGINS_FROM)
		return NULL;
	if (path)
		return "UCX_PLUGIN_PATH";
	snprintf(folder, sizeof(folder), "%.*sucx",
		 (int)(get_basename(u->path) - u->path), u->path);
	return has_plugin(folder, (int)strlen(folder))
		       ? "the ucx folder beside it"
		       : NULL;
}

static bool print_one(const struct tool_library *u, bool preload, bool path)
{
	const char *entry = get_entry(u, preload, path);
	const unsigned int forced = weft_settings()->ucx_force;
	char as[48] = "";

	if (!u->found) {
		printf("  %-9s none: %s\n", u->who, u->why);
		return false;
	}
	printf("  %-9s %u.%u.%u %s\n            %s; ", u->who, u->version[0],
	       u->version[1], u->version[2], u->path, u->why);
	if (forced && (u->version[0] != 1 || u->version[1] != forced))
		snprintf(as, sizeof(as),
			 ", as if it were 1.%u (WEFT_UCX_FORCE)", forced);
	if (!is_supported(u))
		print_unknown(u);
	else if (entry)
		printf("it loads weft through %s%s%s\n", entry, as,
		       preload || strcmp(u->who, "Python")
			       ? ""
			       : ";\n            Dask polls in it without end and is slow: "
				 "LD_PRELOAD avoids that");
	else
		printf("it does not load weft%s\n",
		       path ? ": UCX_PLUGIN_PATH is not read by it" : "");
	return is_supported(u) && entry;
}

enum info_entry info_ucx(void)
{
	struct tool_library found[TOOL_FOUND_MAX];
	char own[TOOL_PATH_MAX];
	const size_t n = tool_find_ucx(found);
	bool preload, path, any = false, fit = false, entered = false;
	size_t i;

	puts("\nHow UCX loads weft");
	preload = is_preloaded();
	path = is_on_plugin_path();
	puts("\nUCX found in this environment");
	for (i = 0; i < n; i++) {
		entered |= print_one(&found[i], preload, path);
		any |= found[i].found;
		fit |= found[i].found && is_supported(&found[i]);
	}
	if (!fit)
		puts("  A program may bring its own UCX; LD_PRELOAD works for that one, too.");
	if (entered || (!any && preload))
		return INFO_ENTERED;
	return (fit || !any) && tool_find(PRELOAD, own) ? INFO_BY_RUN
							: INFO_NO_WAY;
}
