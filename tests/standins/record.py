"""Records what the real ior and mdtest printed in a campaign, for the stand-ins to replay.

    PATH=/opt/ior/bin:$PATH fsmatrix run engines.yaml -o out   # tests/standins/engines.yaml
    python tests/standins/record.py out

Names of this machine and its paths are replaced; nothing else is.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

from fsmatrix.results.files.store import Store

DATA = Path(__file__).resolve().parents[1] / "data" / "standins"


def neutral(text: str, root: str, program: str) -> str:
    """The text without machine and paths."""
    text = text.replace(root, "/mnt/scratch").replace(program, f"/opt/ior/bin/{Path(program).name}")
    text = re.sub(r"/\S*fsmatrix-work-[^/\s]*", "/mnt/out", text)
    return re.sub(rf"\b{re.escape(os.uname().nodename)}\b|\bnode[12]\b", "vm", text)


def main() -> None:
    """Write tests/data/standins from the results directory named on the command line."""
    store = Store.open(Path(sys.argv[1]))
    index = []
    for run_id in store.ids():
        record = store.read(run_id)
        if record.engine not in ("ior", "mdtest") or record.status != "ok":
            continue
        for step, argv in enumerate(record.argv):
            place = next(word for word in argv if run_id in word)
            root = place[: place.index(run_id) + len(run_id)]
            entry = {
                "program": record.engine,
                "nodes": record.coordinates["nodes"],
                "processes": record.coordinates["processes"],
                "argv": [
                    word.replace(root, "PATH").replace("{scratch}", "SCRATCH") for word in argv[1:]
                ],
                "files": {},
            }
            for name, text in record.texts.items():
                number, _, kind = name.partition("-")
                if int(number) != step or kind.endswith("stderr"):
                    continue
                file = f"{record.engine}-{record.coordinates['nodes']}-{run_id[:6]}-{step}"
                file += f"-{Path(name).name}"
                (DATA / file).write_text(neutral(text, root, argv[0]))
                entry["files"][Path(name).name] = file
            index.append(entry)
    (DATA / "index.json").write_text(json.dumps(index, indent=1) + "\n")
    print(f"{len(index)} invocations in {DATA}")


if __name__ == "__main__":
    main()
