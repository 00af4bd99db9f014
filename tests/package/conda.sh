#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The conda packages, built, installed and removed: weft, which changes nothing,
# and weft-auto, which sets what weft run sets in an environment that is active.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tools=$(bash "$WEFT_SRC/tests/tools/venv.sh" --list package)
test -n "$tools" ||
	tap_skip_all "no rattler-build in the cache (tests/tools/venv.sh package)"
for name in LD_PRELOAD "${!UCX_@}" "${!WEFT_@}" "${!DASK_@}" "${!NCCL_@}" \
	"${!OMPI_@}" "${!CONDA_@}"; do
	case $name in
	WEFT_SRC | WEFT_BUILD | WEFT_CACHE) ;;
	*) unset "$name" ;;
	esac
done
tap_folder
channel=$WEFT_BUILD/conda
MAKEFLAGS="" make -s -C "$WEFT_BUILD" conda PYTHON="$tools/bin/python" \
	>"$tap_tmp/log" 2>&1 || {
	tap_not_ok "make conda" "$(tail -20 "$tap_tmp/log")"
	tap_done
}
tap_equal "make conda builds two packages, and their tests pass" \
	"$(cd "$channel" && echo */*.conda | sed 's/-h[0-9a-f]*_0//g')" \
	"$(cd "$channel" && version=$("$WEFT_BUILD/tools/weft" --version) &&
		echo "linux-64/weft-${version#weft }.conda" \
			"noarch/weft-auto-${version#weft }.conda")"

env=$tap_tmp/env
has() # PACKAGE...: what the environment has
{
	"$tools/bin/python" "$WEFT_SRC/tests/package/prefix.py" "$channel" \
		"$env" "$@" >"$tap_tmp/log" 2>&1 ||
		tap_not_ok "packages: $*" "$(tail -5 "$tap_tmp/log")"
}
has weft
tap_equal "weft has files only" \
	"$(cd "$env" && find . ! -type d ! -path './conda-meta/*' \
		! -path './share/*' ! -name CACHEDIR.TAG | sort)" \
"./bin/weft
./lib/libnccl-env-weft.so
./lib/libnccl-net-weft.so
./lib/libweft_preload.so
./lib/ucx/libuct_weft.so
./lib/ucx/libuct_weft.so.0
./lib/ucx/libuct_weft.so.0.0.0"
tap_equal "its command takes its libraries" \
	"$("$env/bin/weft" run sh -c 'echo $LD_PRELOAD')" \
	"$env/lib/libweft_preload.so"
has weft-auto

# As conda does: sources what lies in the two folders, with CONDA_PREFIX set.
cat >"$tap_tmp/activate" <<'EOF'
export CONDA_PREFIX=$env
. "$env/etc/conda/activate.d/weft.sh"
EOF
cat >"$tap_tmp/deactivate" <<'EOF'
. "$env/etc/conda/deactivate.d/weft.sh"
unset CONDA_PREFIX
EOF
# What an environment of a few variables becomes, without what is the shell's.
becomes() # SHELL COMMAND: with $with
{
	env -i PATH="$PATH" env="$env" tap_tmp="$tap_tmp" "${with[@]}" "$1" -c "$2
		env" 2>&1 | grep -v '^\(_\|PWD\|OLDPWD\|SHLVL\)=' | LC_ALL=C sort
}
for shell in bash dash zsh; do
	command -v $shell >/dev/null || {
		tap_skip "$shell activates" "there is no $shell"
		continue
	}
	for case in none LD_PRELOAD=libdl.so.2 LD_PRELOAD= UCX_TLS=tcp,sm,self \
		"OMPI_MCA_pml=it's UCX_SOCKADDR_TLS_PRIORITY=sockcm" \
		"DASK_DISTRIBUTED_UCXX__TCP=true UCX_NET_DEVICES=lo"; do
		with=()
		test "$case" = none || read -ra with <<<"$case"
		tap_equal "$shell, $case: activating sets what weft run does" \
			"$(becomes $shell '. "$tap_tmp/activate"' | grep -v ^CONDA)" \
			"$(becomes $shell 'eval "$("$env/bin/weft" run --print)"')"
		tap_equal "$shell, $case: deactivating restores" \
			"$(becomes $shell '. "$tap_tmp/activate"
				. "$tap_tmp/deactivate"')" "$(becomes $shell :)"
	done
done
has
tap_nothing "removing both leaves nothing" "$(cd "$env" &&
	find . ! -type d ! -path ./conda-meta/history ! -name CACHEDIR.TAG)"
tap_done
