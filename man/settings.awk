# SPDX-License-Identifier: BSD-3-Clause
# What 'weft info settings' prints where none is set, as docs/settings.md.
function escape(text)
{
	gsub(/[][\\^*_<>]/, "\\\\&", text)
	return text
}
function end(part)
{
	if (name == "")
		return
	printf "## %s\n\n%s.", name, escape(texts[0])
	if (def != "")
		printf " Default: **%s**.", def
	for (part = 1; part < 3; part++)
		if (texts[part] != "")
			printf " %s.", escape(texts[part])
	printf "\n\n"
	split("", texts)
}
BEGIN {
	print "# Settings\n"
	print "All are read once, from the environment. A value that makes no sense draws one"
	print "warning and the default is used; so does a misspelt name that begins with"
	print "**WEFT\\_**. Sizes take k, m and g (powers of 1024), times ms, s, m and h; a time"
	print "without a unit is in seconds. Where a setting is read from several names, its"
	print "own comes first.\n"
}
/^WEFT_/ {
	end()
	at = index($0, "=")
	name = substr($0, 1, at - 1)
	def = substr($0, at + 1)
	sub(/  \(default\)$/, "", def)
	part = 0
	next
}
{
	sub(/^ +/, "")
	if (/^Also read from, the first/)
		part = 1
	else if (/^Under NCCL also read/)
		part = 2
	texts[part] = texts[part] (texts[part] == "" ? "" : " ") $0
}
END {
	end()
}
