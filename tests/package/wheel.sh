#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The wheel: what it promises of the system, what it brings into a Python
# environment, and that nothing of it stays behind.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tools=$(bash "$WEFT_SRC/tests/tools/venv.sh" --list package)
test -n "$tools" ||
	tap_skip_all "no hatchling in the cache (tests/tools/venv.sh package)"
unset LD_PRELOAD PYTHONPATH
for name in "${!UCX_@}" "${!WEFT_UCX@}" "${!DASK_@}" "${!NCCL_@}"; do
	unset "$name"
done
tap_folder
MAKEFLAGS="" make -s -C "$WEFT_BUILD" wheel PYTHON="$tools/bin/python" \
	>"$tap_tmp/log" 2>&1 || {
	tap_not_ok "make wheel" "$(tail -20 "$tap_tmp/log")"
	tap_done
}
version=$("$WEFT_BUILD/tools/weft" --version | sed 's/weft //')
tag=manylinux_2_28_$(uname -m)
wheel=$WEFT_BUILD/weft-$version-py3-none-$tag.whl
test -e "$wheel" || {
	tap_not_ok "the wheel is of this version, for any Python 3" \
		"$(ls "$WEFT_BUILD"/*.whl)"
	tap_done
}
"$tools/bin/auditwheel" show --json "$wheel" >"$tap_tmp/audit"
tap_equal "auditwheel finds what the tag promises" \
	"$(sed -n 's/ *"\(overall_tag\|sym_tag\|external_libs\)": //p' \
		"$tap_tmp/audit" | tr -d '\n')" "\"$tag\",\"$tag\",{},"

tap_equal "its author and licence are named" \
	"$(python3 - "$wheel" <<'EOF'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    name, = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    text = wheel.read(name).decode()
print(*(line for line in text.splitlines()
        if line.startswith(("Author: ", "License: "))), sep="\n")
EOF
	)" $'Author: the weft authors\nLicense: BSD-3-Clause'

env=$tap_tmp/env
python3 -m venv --without-pip "$env"
pip() # ARGUMENT...
{
	python3 -m pip --python "$env/bin/python" --no-input \
		--disable-pip-version-check "$@" >"$tap_tmp/log" 2>&1 ||
		tap_not_ok "pip $1" "$(cat "$tap_tmp/log")"
}
listed() { (cd "$env" && find . ! -type d | sort); }
before=$(listed)
pip install --no-index "$wheel"
folder=$(realpath "$env"/lib/python3*/site-packages/weft)

tap_equal "weft is on PATH" "$(PATH=$env/bin:$PATH; weft --version)" \
	"weft $version"
tap_nothing "it does not warn of the script that starts it" \
	"$(PATH=$env/bin:$PATH; weft info 2>&1 | grep "another weft: '$env")"
ignored=$("$env/bin/weft" run sed -n 's/SigIgn:\t//p' /proc/self/status)
tap_equal "programs do not ignore SIGPIPE and SIGXFSZ as Python does" \
	"$((0x$ignored >> 12 & 1)) $((0x$ignored >> 24 & 1))" "0 0"
tap_equal "weft run takes the environment's libraries" \
	"$("$env/bin/weft" run sh -c 'echo $LD_PRELOAD')" \
	"$folder/lib/libweft_preload.so"
tap_equal "the exit code is the program's" \
	"$("$env/bin/weft" run sh -c 'exit 7'; echo $?)" 7
tap_equal "python -m weft prints the paths" "$("$env/bin/python" -m weft)" \
"PATH=$folder/bin
LD_PRELOAD=$folder/lib/libweft_preload.so
UCX_PLUGIN_PATH=$folder/lib/ucx
NCCL_NET_PLUGIN=$folder/lib/libnccl-net-weft.so
NCCL_ENV_PLUGIN=$folder/lib/libnccl-env-weft.so"
tap_equal "weft.nccl_plugin_path() is that of NCCL_NET_PLUGIN" \
	"$("$env/bin/python" -c 'import weft; print(weft.nccl_plugin_path())')" \
	"$folder/lib/libnccl-net-weft.so"
tap_nothing "and each is there" "$("$env/bin/python" -m weft | cut -d= -f2 |
	while read -r path; do test -e "$path" || echo "$path"; done)"
tap_equal "man finds the pages beside PATH's folder" \
	"$(ls "$env"/share/man/man?/*weft* | wc -l)" \
	"$(ls "$WEFT_SRC"/man/*.[17].md | grep -vc '\.end\.')"
tap_equal "NCCL can load the plugin" \
	"$(NCCL_NET_PLUGIN=$folder/lib/libnccl-net-weft.so \
		"$env/bin/weft" info nccl | grep -c 'NCCL uses weft')" 1
tap_equal "import weft maps and sets nothing where UCX is not loaded" \
	"$("$env/bin/python" -c '
import os
before = dict(os.environ)
import weft
print("libuct_weft" in open("/proc/self/maps").read(), before == os.environ)')" \
	"False True"

ucxx=$(bash "$WEFT_SRC/tests/tools/venv.sh" --list)
if test -n "$ucxx"; then
	(cd "$ucxx"/lib/python3*/site-packages && pwd) \
		>"$(dirname "$folder")/ucxx.pth"
	imported() # ARGUMENT...: UCX knows no other transport
	{
		UCX_TLS=weft_tcp UCX_WARN_UNUSED_ENV_VARS=n timeout 60 \
			"$env/bin/python" "$WEFT_SRC/tests/package/imported.py" \
			"$@" 2>&1 | tail -1
	}
	tap_equal "UCX has no weft of itself" "$(imported ucxx)" \
		"ucxx.UCXXNoDeviceError: No such device"
	tap_equal "import weft registers with a UCX that is imported" \
		"$(imported ucxx weft)" "1048576 bytes, right"
	tap_equal "not with one that comes later" "$(imported weft ucxx)" \
		"ucxx.UCXXNoDeviceError: No such device"
	tap_equal "import weft under weft run" \
		"$(PATH=$env/bin:$PATH; UCX_TLS=weft_tcp weft run timeout 60 \
			python "$WEFT_SRC/tests/package/imported.py" ucxx weft \
			2>&1 | tail -1)" "1048576 bytes, right"
	rm "$(dirname "$folder")/ucxx.pth"
else
	tap_skip "import weft registers with a UCX that is imported" \
		"no ucxx in the cache (tests/tools/venv.sh)"
fi

pip uninstall -y weft
tap_equal "pip uninstall leaves no file" "$(listed)" "$before"
tap_done
