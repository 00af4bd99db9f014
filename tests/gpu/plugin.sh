# SPDX-License-Identifier: BSD-3-Clause
# For the scripts of tests/gpu and bench/gpu, which set $root and source it: $plugin
# is the plugin of the build tree, of $WEFT_PLUGIN, or the installed one; results go
# to $out, which is $OUT or ./out.

find_plugin()
{
	local file
	for file in "$WEFT_PLUGIN" "${WEFT_BUILD:-$root}"/nccl_net/.libs/libnccl-net-weft.so \
		"$root"/build*/nccl_net/.libs/libnccl-net-weft.so \
		/usr/local/lib/libnccl-net-weft.so /usr/lib/libnccl-net-weft.so; do
		if test -n "$file" && test -f "$file"; then
			realpath "$file"
			return
		fi
	done
}

plugin=$(find_plugin)
if test -z "$plugin"; then
	echo "$0: no libnccl-net-weft.so: build it, or name it in WEFT_PLUGIN" >&2
	exit 2
fi
unset WEFT_PLUGIN	# no setting of the plugin, which would warn
export PYTHONUNBUFFERED=1
out=${OUT:-$PWD/out}
# A file lost to a full disk or a killed run must not pass for a result.
mkdir -p "$out" || exit 2
