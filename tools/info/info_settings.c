/* SPDX-License-Identifier: BSD-3-Clause */
/* weft info settings: the table, for people and for the manual page. */
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

#define FIRST_THAT_IS_SET "Also read from, the first that is set: "
#define NCCLS_FIRST	  " (under NCCL its own variables first)"
#define UNDER_NCCL	  "Under NCCL also read from: "

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
	snprintf(text, sizeof(text), FIRST_THAT_IS_SET "%s%s", s.any,
		 s.nccl_first ? NCCLS_FIRST : "");
	if (*s.any)
		print_wrapped(text, 6);
	snprintf(text, sizeof(text), UNDER_NCCL "%s", s.nccl);
	if (*s.nccl)
		print_wrapped(text, 6);
}

/* Escape for Markdown. */
static void print_escaped(const char *text)
{
	for (; *text; text++) {
		if (strchr("^*_[]<>\\", *text))
			putchar('\\');
		putchar(*text);
	}
}

/* The form of docs/settings.md and weft(7), without this process's values. */
static void print_man(const struct weft_setting_info *info)
{
	struct sources s;

	printf("## %s\n\n", info->name);
	print_escaped(info->help);
	putchar('.');
	if (*info->def)
		printf(" Default: **%s**.", info->def);
	find_sources(info->aliases, &s);
	if (*s.any) {
		fputs(" " FIRST_THAT_IS_SET, stdout);
		print_escaped(s.any);
		printf("%s.", s.nccl_first ? NCCLS_FIRST : "");
	}
	if (*s.nccl) {
		fputs(" " UNDER_NCCL, stdout);
		print_escaped(s.nccl);
		putchar('.');
	}
	fputs("\n\n", stdout);
}

static const char man_heading[] =
	"# Settings\n"
	"\n"
	"All are read once, from the environment. A value that makes no sense draws one\n"
	"warning and the default is used; so does a misspelt name that begins with\n"
	"**WEFT\\_**. Sizes take k, m and g (powers of 1024), times ms, s, m and h; a time\n"
	"without a unit is in seconds. Where a setting is read from several names, its\n"
	"own comes first.\n"
	"\n";

int info_settings(bool man)
{
	struct weft_setting_info info;
	size_t i;

	if (man)
		fputs(man_heading, stdout);
	for (i = 0; i < weft_settings_count(); i++) {
		weft_settings_info(i, &info);
		if (man)
			print_man(&info);
		else
			print_row(&info);
	}
	return 0;
}
