#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# weft info shows what the host has.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
. "$WEFT_SRC/tests/lib/ucx_source.sh"
weft=$WEFT_BUILD/tools/weft
unset LD_PRELOAD UCX_TLS UCX_NET_DEVICES VIRTUAL_ENV CONDA_PREFIX LD_LIBRARY_PATH
for name in "${!DASK_@}" "${!WEFT_NET@}" NCCL_SOCKET_IFNAME UCXPY_IFNAME \
	NCCL_NET NCCL_NET_PLUGIN; do
	unset "$name"
done
tap_folder

shows() # NAME WORDS [VARIABLE=VALUE...] [-- ARGUMENT...]
{
	local name=$1 words=$2 vars=() out
	shift 2
	while test $# -gt 0 && test "$1" != --; do
		vars+=("$1")
		shift
	done
	out=$(env "${vars[@]}" "$weft" info "${@:2}" 2>&1)
	if grep -q -- "$words" <<<"$out"; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "not found: $words" $'\n'"in: $out"
	fi
}

lacks() # NAME WORDS [VARIABLE=VALUE...]
{
	tap_nothing "$1" "$(env "${@:3}" "$weft" info 2>&1 | grep -- "$2")"
}

# The exit code for scripts; 0: something would be carried
ends() # NAME CODE [VARIABLE=VALUE...] [-- TOPIC]
{
	local name=$1 code=$2 vars=() out rc
	shift 2
	while test $# -gt 0 && test "$1" != --; do
		vars+=("$1")
		shift
	done
	test $# -gt 0 || set -- -- --check
	out=$(env "${vars[@]}" "$weft" info "${@:2}" 2>&1)
	rc=$?
	if test $rc = "$code"; then
		tap_ok "$name: exit code $code"
	else
		tap_not_ok "$name: exit code $code" "exit code $rc: $out"
	fi
}

# What a first user sees: the exit code without --check, and the last line.
last() # NAME CODE LINE [VARIABLE=VALUE...]
{
	tap_equal "$1" "$(env "${@:4}" "$weft" info 2>/dev/null >"$tap_tmp/out"
		echo $?
		tail -1 "$tap_tmp/out")" "$2"$'\n'"$3"
}

shows "loopback is usable within this host" '^  lo  *127\.0\.0\.1 .*yes, between processes of this host'
shows "an excluded interface, and the variable that excludes it" \
	'^  lo .*no: excluded by UCX_NET_DEVICES=nosuch0' UCX_NET_DEVICES=nosuch0
shows "an interface that is named and does not exist" \
	'^  nosuch0  *named in UCX_NET_DEVICES: no such interface' \
	UCX_NET_DEVICES=nosuch0,lo
shows "a range with an interface that does not exist" \
	'^  nosuch2  *named in UCX_NET_DEVICES: no such interface' \
	UCX_NET_DEVICES='nosuch[1-2],lo'
lacks "an excluded interface need not exist" 'named in' UCX_NET_DEVICES=^nosuch0
shows "without a usable interface nothing is carried" '^  weft carries nothing: no usable interface\.$' \
	UCX_TLS=weft_tcp WEFT_NET_DEVICES=nosuch0
shows "loopback alone reaches no other host" 'none: no usable interface' WEFT_NET_DEVICES=lo
shows "nothing connects without a readable secret" 'Nothing: WEFT_SECRET_FILE cannot be read' \
	UCX_TLS=weft_tcp WEFT_SECRET_FILE=/nosuch
shows "the unreadable secret file by name" '/nosuch., named by WEFT_SECRET_FILE' \
	UCX_TLS=weft_tcp WEFT_SECRET_FILE=/nosuch
shows "weft_tcp is not offered unless requested" 'UCX_TLS here is unset: weft_tcp is not offered'
shows "an unrequested weft carries nothing" "weft carries nothing: it is not requested; under 'weft run'"
shows "a requested weft that no UCX loads carries nothing" "weft carries nothing: no UCX loads it; under 'weft run'" \
	UCX_TLS=weft_tcp
shows "a missing LD_PRELOAD library is named" "the dynamic linker could not load '/nosuch/libweft_preload.so'" \
	LD_PRELOAD=/nosuch/libweft_preload.so
shows "a UCX_PLUGIN_PATH without weft is named" "libuct_weft.so is not in '/nosuch:/dev'" \
	UCX_PLUGIN_PATH=/nosuch:/dev
if test -n "$WEFT_SANITIZED"; then
	tap_skip "weft is preloaded" "a sanitized library cannot be preloaded"
else
	preload=LD_PRELOAD=$(product libweft_preload.so)
	shows "weft is preloaded" 'LD_PRELOAD  */.*libweft_preload\.so, set here' "$preload"
	lacks "requested and preloaded: it carries" "weft carries nothing" UCX_TLS=weft_tcp "$preload"
	ends "requested and preloaded" 0 UCX_TLS=weft_tcp "$preload"
	ends "requested, loopback only" 0 UCX_TLS=weft_tcp WEFT_NET_DEVICES=lo "$preload"
	ends "requested, no interface" 1 UCX_TLS=weft_tcp WEFT_NET_DEVICES=nosuch0 "$preload"
	ends "preloaded, not requested" 1 "$preload"
	ends "requested, WEFT_UCX=off" 1 UCX_TLS=weft_tcp WEFT_UCX=off "$preload"
	ends "requested, unreadable secret" 1 UCX_TLS=weft_tcp WEFT_SECRET_FILE=/nosuch "$preload"
	last "requested and preloaded: ready" 0 \
		"Ready: programs that are started here use weft" \
		UCX_TLS=weft_tcp "$preload"
	mkdir "$tap_tmp/alone"
	cp "${preload#*=}" "$tap_tmp/alone"
	shows "a preload library without its plugin is named" \
		"libuct_weft.so is not in '$tap_tmp/alone/ucx': reinstall weft" \
		LD_PRELOAD="$tap_tmp/alone/libweft_preload.so"
fi
ends "requested, not loaded" 1 UCX_TLS=weft_tcp
ends "as it is installed" 1
last "as it is installed: ready for weft run" 0 \
	"Ready: start programs with \`weft run\`"
last "WEFT_UCX=off: not ready" 1 "Not ready: WEFT_UCX=off" WEFT_UCX=off
last "no interface: not ready" 1 "Not ready: no usable interface" \
	WEFT_NET_DEVICES=nosuch0
last "a secret that cannot be used: not ready" 1 \
	"Not ready: WEFT_SECRET_FILE cannot be used" WEFT_SECRET_FILE=/nosuch
# Python and some job runners ignore SIGPIPE.
tap_nothing "a reader that leaves, as head does, is no error" \
	"$(python3 - "$weft" 2>&1 <<'EOF'
import os, subprocess, sys
reader, writer = os.pipe()
os.close(reader)
done = subprocess.run([sys.argv[1], "info"], stdout=writer,
                      stderr=subprocess.PIPE, restore_signals=False)
print(done.stderr.decode(), end="")
EOF
	)"
if unshare -Urn true 2>/dev/null; then
	tap_equal "an interface that is down" "$(UCX_NET_DEVICES=lo \
		unshare -Urn "$weft" info |
		sed -n 's/^  lo  *\(named in .*\)/\1/p')" \
		"named in UCX_NET_DEVICES: it is down or has no address"
else
	tap_skip "an interface that is down" "no network namespace to be had here"
fi
shows "the transport within this host" '^  on this host  *weft_tcp$' UCX_TLS=weft_tcp
shows "WEFT_UCX=off disables weft run, too" 'weft is not offered, not even by' WEFT_UCX=off UCX_TLS=weft_tcp
shows "weft_shm, where it is asked for" '^  on this host  *weft_shm, between' \
	UCX_TLS=weft_shm,weft_tcp
shows "weft_shm, which weft run would ask for" '^  on this host  *weft_shm, between' \
	UCX_TLS=
shows "weft_shm alone" '^  on this host  *weft_shm, between' UCX_TLS=weft_shm
# in a folder of its own: the matrix has other processes that run meanwhile
mkdir "$tap_tmp/lone"
lacks "weft_shm, where it is not asked for" 'weft_shm' UCX_TLS=weft_tcp \
	WEFT_RUN_DIR="$tap_tmp/lone"
lacks "no paths are printed with WEFT_UCX=off" 'on this host' WEFT_UCX=off
shows "weft_nvl alone without a GPU carries nothing" '^  weft carries nothing\.$' \
	UCX_TLS=weft_nvl
shows "weft_nvl alone leaves host memory to UCX" "^  on this host  *not weft$" \
	UCX_TLS=weft_nvl,cuda_copy WEFT_LIBCUDA="$WEFT_BUILD/tests/lib/.libs/libfake_cuda.so"
shows "weft_tcp is offered if UCX_TLS names it" 'UCX_TLS here is weft_tcp: weft_tcp is offered' \
	UCX_TLS=weft_tcp
shows "weft_ib without an active port" 'no active port: .*weft_ib' \
	UCX_TLS=weft_ib WEFT_IB_DEVICES=nosuch
shows "a Dask flag becomes UCX_TLS" 'loaded here, weft sets  UCX_TLS=weft_shm,weft_tcp  (Dask' \
	DASK_UCX__TCP=True
shows "what weft run would set" "'weft run' would set    UCX_TLS=weft_shm,weft_tcp,sm" \
	UCX_TLS=tcp,sm
shows "interfaces of UCX are set for NCCL" 'NCCL_SOCKET_IFNAME==lo (from UCX_NET_DEVICES)' \
	UCX_NET_DEVICES=lo -- nccl
shows "a NCCL_SOCKET_IFNAME that is set stays" 'NCCL_SOCKET_IFNAME=lo: set by you' \
	WEFT_NET_DEVICES=lo NCCL_SOCKET_IFNAME=lo -- nccl
shows "NCCL_IB_DISABLE leaves TCP" 'NCCL_IB_DISABLE is set: everything goes over TCP' \
	NCCL_IB_DISABLE=1 -- nccl
mkdir -p "$tap_tmp/other/bin"
cp "$weft" "$tap_tmp/other/bin"
shows "another weft on PATH is named" "PATH has another weft: '$tap_tmp/other/bin/weft'" \
	PATH="$tap_tmp/other/bin:$PATH"
ln -s "$weft" "$tap_tmp/weft"
lacks "a link to the same weft is not" 'another weft' PATH="$tap_tmp:$PATH"
# As pip installs it.
package=$tap_tmp/pip/lib/python3.11/site-packages/weft
mkdir -p "$package/bin" "$tap_tmp/pip/bin"
cp "$weft" "$package/bin"
printf '#!/bin/sh\nexec %s/bin/weft "$@"\n' "$package" >"$tap_tmp/pip/bin/weft"
chmod +x "$tap_tmp/pip/bin/weft"
tap_nothing "nor the script by which pip starts it" \
	"$(PATH=$tap_tmp/pip/bin:/usr/bin:/bin weft info 2>&1 | grep 'another weft')"
tap_equal "but that of another weft is" \
	"$(PATH=$tap_tmp/pip/bin:/usr/bin:/bin "$weft" info 2>&1 |
		grep -c "another weft: '$tap_tmp/pip/bin/weft'")" 1
shows "the path of the NCCL plugin" 'libnccl-net-weft.so$' -- nccl
shows "a missing NCCL plugin is named" \
	"NCCL_NET_PLUGIN names '/nosuch/libnccl-net-weft.so' (No such file .*): NCCL continues without weft; give" \
	NCCL_NET_PLUGIN=other,/nosuch/libnccl-net-weft.so -- nccl
nccl() # NAME WORDS CODE [VARIABLE=VALUE...]
{
	shows "$1" "$2" "${@:4}" -- nccl
	ends "$1" "$3" "${@:4}" -- nccl
}
ours=$(product libnccl-net-weft.so)
nccl "no NCCL plugin is named" 'does not use weft: NCCL_NET_PLUGIN is not set' 1
nccl "another NCCL plugin is named" \
	'does not use weft: NCCL_NET_PLUGIN names another plugin, .*give it the path above' 1 \
	NCCL_NET_PLUGIN=ofi
nccl "weft's, by its path" "NCCL uses weft: NCCL_NET_PLUGIN=$ours" 0 \
	NCCL_NET_PLUGIN="$ours"
nccl "weft's, by its name" "NCCL uses weft: NCCL_NET_PLUGIN=weft" 0 \
	NCCL_NET_PLUGIN=weft LD_LIBRARY_PATH="$(dirname "$ours")"
nccl "a name that the linker does not find" \
	"cannot load 'libnccl-net-weft.so', .*; give the path above" 1 \
	NCCL_NET_PLUGIN=weft
nccl "NCCL_NET names another network" 'NCCL_NET names another network' 1 \
	NCCL_NET_PLUGIN="$ours" NCCL_NET=Socket
nccl "another plugin comes first in the list" 'names another plugin first' 1 \
	NCCL_NET_PLUGIN="ofi,$ours"
nccl "another plugin comes first, NCCL_NET names weft" 'NCCL uses weft' 0 \
	NCCL_NET_PLUGIN="ofi,$ours" NCCL_NET=weft
: >"$tap_tmp/libnccl-net-weft.so"
nccl "a file that is no library" "cannot load '$tap_tmp/libnccl-net-weft.so'" 1 \
	NCCL_NET_PLUGIN="$tap_tmp/libnccl-net-weft.so"
cp "$WEFT_BUILD/tests/nccl/.libs/libplain.so" "$tap_tmp/libnccl-net-weft.so"
nccl "a plugin that is not weft's" "it is not weft's network plugin" 1 \
	NCCL_NET_PLUGIN="$tap_tmp/libnccl-net-weft.so"
tap_nothing "no plugin warning if it is found or not wanted" "$(
	NCCL_NET_PLUGIN=$(product libnccl-net-weft.so) "$weft" info nccl 2>&1 \
		>/dev/null
	for name in weft libnccl-net-weft.so /nosuch/libnccl-net-ofi.so; do
		NCCL_NET_PLUGIN=$name "$weft" info nccl 2>&1 >/dev/null
	done
	NCCL_NET=Socket NCCL_NET_PLUGIN=/nosuch/libnccl-net-weft.so \
		"$weft" info nccl 2>&1 >/dev/null)"
shows "streams follow NCCL's socket variables" '12 streams per peer, as set' \
	NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=3 -- nccl
shows "variables that the plugin sets" \
	'NCCL_P2P_NET_CHUNKSIZE=524288, set by the plugin' \
	-- nccl
shows "a plugin variable that is set stays" 'NCCL_P2P_NET_CHUNKSIZE=65536, as set' \
	NCCL_P2P_NET_CHUNKSIZE=65536 -- nccl
shows "settings that differ from the default" '^  WEFT_TCP_CHUNK=1m  (from environment)' \
	WEFT_TCP_CHUNK=1m
shows "a misspelt setting gets a suggestion" 'did you mean WEFT_TCP_CHUNK?' WEFT_TCP_CHUNKS=1m
shows "a value out of range is explained" "WEFT_TCP_CHUNK='1t' is not from 4k to 64m" WEFT_TCP_CHUNK=1t
shows "aliases read under NCCL only" \
	'Under NCCL also read from: NCCL_SOCKET_FAMILY$' -- settings
shows "aliases preferred under NCCL" \
	'IFNAME (under NCCL its own variables first)$' -- settings
shows "info settings prints value, origin and default" '^WEFT_PORT_RANGE=5000-5010  (from UCX_TCP_PORT_RANGE; default 0)' \
	UCX_TCP_PORT_RANGE=5000-5010 -- settings
shows "an unknown topic is an error" "there is no topic 'nothing'" -- nothing
shows "--check with a topic is an error" '--check takes no topic' -- --check nccl
shows "an unknown option is an error" "unknown option '--fly'" -- --fly

# GPUs, as the fake driver shows them.
gpus() # NAME WORDS [VARIABLE=VALUE...]
{
	shows "$@" WEFT_LIBCUDA="$fake" WEFT_LIBNVML="$fake" WEFT_TEST_NVML=1
}
fake=$WEFT_BUILD/tests/lib/.libs/libfake_cuda.so
gpus "a GPU and its name" '^  0000:e1:00\.0  a fake GPU 1$'
gpus "NVLink between two GPUs, with its links" \
	'e0:00\.0 - 0000:e1:00\.0  NVLink, 4 links; importable$'
gpus "NVLink through a switch" 'e2:00\.0 - 0000:e3:00\.0  NVLink, 5 links; importable' \
	WEFT_TEST_CUDA_NODES=23
gpus "PCIe between two GPUs" 'e1:00\.0 - 0000:e2:00\.0  PCIe (SYS); importable' \
	WEFT_TEST_CUDA_NODES=12
gpus "PCIe without peer access is not importable" \
	"PCIe (SYS); not importable: neither can read the other's memory" \
	WEFT_TEST_CUDA_NODES=14
gpus "MIG is not importable" 'not importable: 0000:e0:00\.0 is divided into instances (MIG)' \
	WEFT_TEST_CUDA_MIG=1
gpus "a driver that hangs is given up" 'the driver gave no answer within 10 s' \
	WEFT_TEST_CUDA_HANG=1
shows "a missing CUDA driver is named" "cannot load the CUDA driver '/nosuch'" \
	WEFT_LIBCUDA=/nosuch WEFT_LIBNVML="$fake" WEFT_TEST_NVML=1
mkdir "$tap_tmp/run"
gpus "the run folder is printed" "^  run folder: $tap_tmp/run/weft-" \
	WEFT_RUN_DIR="$tap_tmp/run"
shows "... and for weft_shm, without a GPU" "^  run folder: $tap_tmp/run/weft-" \
	WEFT_RUN_DIR="$tap_tmp/run" CUDA_VISIBLE_DEVICES=
tap_nothing "info does not create the run folder" "$(ls "$tap_tmp/run")"
mkdir -m 755 "$tap_tmp/run/weft-$(id -u)"
gpus "a run folder open to others is refused" \
	"run folder: none; '$tap_tmp/run/weft-[0-9]*' is not private to this user" \
	WEFT_RUN_DIR="$tap_tmp/run"
rmdir "$tap_tmp/run/weft-$(id -u)"
touch "$tap_tmp/run/weft-$(id -u)"
gpus "where another user has its name it has another one" \
	"^  run folder: $tap_tmp/run/weft-[0-9]*\.1$" WEFT_RUN_DIR="$tap_tmp/run"
touch "$tap_tmp/run/weft-$(id -u)".{1,2,3,4,5,6,7}
gpus "where another user has all names there is none" \
	"run folder: none; '$tap_tmp/run/weft-[0-9]*' is not private to this user" \
	WEFT_RUN_DIR="$tap_tmp/run"
gpus "a missing run folder is an error" 'cannot be used: No such file or directory' \
	WEFT_RUN_DIR="$tap_tmp/nosuch"

# A fake UCX, in each place where one is looked for.
fake_ucx() # FOLDER MINOR
{
	mkdir -p "$1"
	echo 'void ucp_get_version(unsigned *a, unsigned *b, unsigned *c);
	void ucp_get_version(unsigned *a, unsigned *b, unsigned *c)
	{ *a = 1; *b = MINOR; *c = 3; }' |
		$CC -x c -shared -fPIC -DMINOR="$2" -o "$1/libucp.so.0" -
}
newest=$(ucx_minor_max)
if fake_ucx "$tap_tmp/old" 12 2>"$tap_tmp/err"; then
	fake_ucx "$tap_tmp/new" $((newest + 1))
	fake_ucx "$tap_tmp/conda/lib" 18
	fake_ucx "$tap_tmp/package/lib" 21
	shows "an unsupported older UCX is listed" "1\.12\.3 $tap_tmp/old/libucp" LD_LIBRARY_PATH="$tap_tmp/old"
	shows "the supported range is printed" "; this weft supports 1\.13 to 1\.$newest:$" \
		LD_LIBRARY_PATH="$tap_tmp/old"
	shows "... and that a newer UCX helps" "^            install a newer UCX$" \
		LD_LIBRARY_PATH="$tap_tmp/old"
	shows "an unsupported newer UCX is listed" "1\.$((newest + 1))\.3 $tap_tmp/new/libucp" LD_LIBRARY_PATH="$tap_tmp/new"
	shows "... and what to do about it" "^            install a newer weft, or try WEFT_UCX_FORCE=$newest at your own risk" \
		LD_LIBRARY_PATH="$tap_tmp/new"
	shows "conda's UCX is listed" "conda  *1\.18\.3 $tap_tmp/conda/lib/libucp" \
		CONDA_PREFIX="$tap_tmp/conda"
	shows "conda without UCX" "conda  *none: no libucp.so.0 in $tap_tmp/old/lib" \
		CONDA_PREFIX="$tap_tmp/old"
	mkdir -p "$tap_tmp/venv/bin"
	printf '#!/bin/sh\nprintf %%s "%s"\n' "$tap_tmp/package" \
		>"$tap_tmp/venv/bin/python"
	chmod +x "$tap_tmp/venv/bin/python"
	shows "Python's UCX is listed" "Python  *1\.21\.3 $tap_tmp/package/lib/libucp" \
		VIRTUAL_ENV="$tap_tmp/venv"
	shows "Python without libucx" "Python  *none: no libucx package" \
		VIRTUAL_ENV="$tap_tmp/nothing"
	# How UCX 1.22 and later load plugins, and earlier ones do not.
	fake_ucx "$tap_tmp/plugins" 22
	way() # NAME WORDS CODE [VARIABLE=VALUE...]
	{
		shows "$1" "$2" UCX_TLS=weft_tcp "${@:4}"
		ends "$1" "$3" UCX_TLS=weft_tcp PATH=/nosuch "${@:4}"
	}
	plugin=UCX_PLUGIN_PATH=/nosuch:$(dirname "$(product libuct_weft.so)")
	way "1.22 reads UCX_PLUGIN_PATH" "choice, LD.*it loads weft through UCX_PLUGIN" 0 \
		LD_LIBRARY_PATH="$tap_tmp/plugins" "$plugin"
	way "1.21 does not read UCX_PLUGIN_PATH" "weft: UCX_PLUGIN_PATH is not read by it" 1 \
		LD_LIBRARY_PATH="$tap_tmp/package/lib" "$plugin"
	way "1.22 without UCX_PLUGIN_PATH does not load weft" "choice, LD.*it does not load weft$" 1 \
		LD_LIBRARY_PATH="$tap_tmp/plugins"
	mkdir "$tap_tmp/plugins/ucx"
	ln -s "$(product libuct_weft.so)" "$tap_tmp/plugins/ucx"
	way "1.22 loads weft from its ucx folder" "it loads weft through the ucx folder beside" 0 \
		LD_LIBRARY_PATH="$tap_tmp/plugins"
	test -n "$WEFT_SANITIZED" ||
		way "1.21 loads weft through LD_PRELOAD" "it loads weft through LD_PRELOAD$" 0 \
			LD_LIBRARY_PATH="$tap_tmp/package/lib" "$preload"
	test -n "$WEFT_SANITIZED" ||
		way "WEFT_UCX_FORCE loads weft into an unsupported UCX" \
			"it loads weft through LD_PRELOAD, as if it were 1.$newest (WEFT_UCX_FORCE)$" 0 \
			LD_LIBRARY_PATH="$tap_tmp/new" "$preload" \
			WEFT_UCX_FORCE="$newest"
	test -n "$WEFT_SANITIZED" ||
		way "WEFT_UCX_FORCE takes a supported UCX for another" \
			"it loads weft through LD_PRELOAD, as if it were 1.18 (WEFT_UCX_FORCE)$" 0 \
			LD_LIBRARY_PATH="$tap_tmp/package/lib" "$preload" \
			WEFT_UCX_FORCE=1.18
	ends "only an unsupported UCX" 1 UCX_TLS=weft_tcp PATH=/nosuch \
		LD_LIBRARY_PATH="$tap_tmp/new" ${preload-}

	mkdir -p "$tap_tmp/newer/lib"
	cp "$tap_tmp/plugins/libucp.so.0" "$tap_tmp/newer/lib"
	sed "s|$tap_tmp/package|$tap_tmp/newer|" "$tap_tmp/venv/bin/python" \
		>"$tap_tmp/python"
	chmod +x "$tap_tmp/python"
	mkdir -p "$tap_tmp/venv22/bin"
	mv "$tap_tmp/python" "$tap_tmp/venv22/bin"
	shows "Python's UCX without LD_PRELOAD is slow under Dask" "Dask polls in it without end and is slow" \
		VIRTUAL_ENV="$tap_tmp/venv22" "$plugin"
	test -n "$WEFT_SANITIZED" ||
		lacks "Python's UCX with LD_PRELOAD is not" "without end" \
			VIRTUAL_ENV="$tap_tmp/venv22" "$preload"

	# A library that ends the process that loads it.
	echo '__attribute__((constructor)) static void f(void)
	{ __builtin_trap(); }' |
		$CC -x c -shared -fPIC -o "$tap_tmp/old/libucp.so.0" -
	shows "a libucp that crashes when loaded" "programs  *none: 'libucp.so.0' crashes" \
		LD_LIBRARY_PATH="$tap_tmp/old"
else
	tap_skip "tests with a fake UCX" "no compiler: $(head -1 "$tap_tmp/err")"
fi
tap_done
