#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The notebook is the script, cell by cell. `make update-notebook` renews it.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
command -v python3 >/dev/null || tap_skip_all "needs python3"
cd "$WEFT_SRC/examples" || exit 99

tap_nothing "nccl_clique.ipynb is made of nccl_clique.py" \
	"$(python3 ../tests/tools/notebook.py nccl_clique.py |
		diff nccl_clique.ipynb - 2>&1 | head -20)"
# by another way than the one it is made by
tap_nothing "its cells are the script's lines, and have no output" "$(
	python3 - <<-'END' 2>&1
	import json
	with open("nccl_clique.ipynb") as file:
	    cells = json.load(file)["cells"]
	lines = []
	for cell in cells:
	    code = cell["cell_type"] == "code"
	    lines += ["# %%" if code else "# %% [markdown]"]
	    lines += [line.rstrip("\n") if code else ("# " + line).rstrip()
	              for line in cell["source"]]
	    if cell.get("outputs") or cell.get("execution_count"):
	        print("output in", cell["id"])
	with open("nccl_clique.py") as file:
	    script = [line.rstrip("\n") for line in file][1:]
	if list(filter(None, script)) != list(filter(None, lines)):
	    print("other lines than the script's")
	END
)"
tap_done
