/* SPDX-License-Identifier: BSD-3-Clause */
/* weft info settings; man/settings.awk makes a page of what it prints. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "settings/settings.h"
#include "tools/tool.h"

/* Wrap @text at 78 columns, each line indented by @indent blanks. */
static void print_wrapped(const char *text, int indent)
{
	int column = 0;
	size_t len;

	while (*text) {
		len = strcspn(text, " ");
		if (column && column + 1 + (int)len > 78) {
			putchar('\n');
			column = 0;
		}
		if (!column)
			column = printf("%*s", indent, "");
		else
			column += printf(" ");
		column += printf("%.*s", (int)len, text);
		text += len;
		text += strspn(text, " ");
	}
	putchar('\n');
}

/* The aliases of a setting, as text. */
struct sources {
	char any[512];	 /* "UCX_X, NCCL_X", or "" */
	char nccl[128];	 /* those under NCCL only, or "" */
	bool nccl_first; /* @any has one of NCCL's, not first */
};

static void append_name(char *list, size_t room, const char *name)
{
	const size_t at = strlen(list);

	snprintf(list + at, room - at, "%s%s", at ? ", " : "", name);
}

static void find_sources(const char *aliases, struct sources *s)
{
	char name[64];
	size_t len;

	memset(s, 0, sizeof(*s));
	for (; aliases && *aliases; aliases += len + !!aliases[len]) {
		len = strcspn(aliases, ",");
		snprintf(name, sizeof(name), "%.*s", (int)len, aliases);
		if (weft_setting_nccl_only(name)) {
			append_name(s->nccl, sizeof(s->nccl), name);
			continue;
		}
		s->nccl_first |= *s->any && !strncmp(name, "NCCL_", 5);
		append_name(s->any, sizeof(s->any), name);
	}
}

static void print_row(const struct weft_setting_info *info)
{
	struct sources s;
	char text[640];

	printf("%s=%s", info->name, info->value);
	if (!strcmp(info->origin, "default"))
		printf("  (default)\n");
	else
		printf("  (from %s; default %s)\n", info->origin,
		       *info->def ? info->def : "none");
	print_wrapped(info->help, 6);
	find_sources(info->aliases, &s);
	snprintf(text, sizeof(text),
		 "Also read from, the first that is set: %s%s", s.any,
		 s.nccl_first ? " (under NCCL its own variables first)" : "");
	if (*s.any)
		print_wrapped(text, 6);
	snprintf(text, sizeof(text), "Under NCCL also read from: %s", s.nccl);
	if (*s.nccl)
		print_wrapped(text, 6);
}

void info_settings(void)
{
	struct weft_setting_info info;
	size_t i;

	for (i = 0; i < weft_settings_count(); i++) {
		weft_settings_info(i, &info);
		print_row(&info);
	}
}
