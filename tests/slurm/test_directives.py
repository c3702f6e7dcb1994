"""Why foreign directives and shortened options are refused: the real sbatch obeys them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsmatrix.slurm.testbed import SlurmTestbed
from fsmatrix.suite.campaign.campaign import OWN, WHOLE, SlurmSection, owned

OVERWRITES = ("#PBS -o ", "#BSUB -o ", "#SBATCH --outpu=")


@pytest.mark.parametrize("line", OVERWRITES)
def test_sbatch_obeys_it(line: str, bed: SlurmTestbed, tmp_path: Path) -> None:
    victim, script = tmp_path / "victim", tmp_path / "job.sh"
    victim.write_text("precious\n")
    script.write_text(f"#!/bin/bash\n{line}{victim}\necho gone\n")
    bed.run("sbatch", "--wait", str(script))
    assert victim.read_text() == "gone\n"


def test_the_section_does_not_hand_it_on() -> None:
    for line in OVERWRITES[:2]:
        with pytest.raises(ValueError, match="is not a directive"):
            SlurmSection.model_validate({"directives": [f"{line}/etc/motd"]})
    for name in OWN:
        for end in range(1, len(name) + 1):
            short = name[:end]
            assert owned(short) or short in WHOLE, short
            assert owned(short.upper().replace("-", "_")) or short in WHOLE, short
