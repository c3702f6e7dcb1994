"""Words of a campaign for IOR, mdtest, fio, dbench and Ceph clients: only what is listed passes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fsmatrix.backends.ceph.ceph_options import RadosOptions
from fsmatrix.suite.workloads.dbench import DbenchOptions
from fsmatrix.suite.workloads.fio_options import FREE, OF_JOBS, FioOptions
from fsmatrix.suite.workloads.ior import WORDS, IorOptions
from fsmatrix.suite.workloads.mdtest import EXTRA, MODULES, MdtestOptions
from tests.waiting import PATIENCE

BAD: list[tuple[type[Any], dict[str, Any]]] = [
    *((IorOptions, {"extra_arguments": words}) for words in (
        ["-f", "script"], ["-U", "hints"], ["-Uhints"], ["--dfs.pool=other"], ["-gf", "script"],
        ["--rados.pool=other"], ["--cephfs.prefix=/x"], ["--mpiio.hintsFileName=x"], ["victim"],
        ["--"], ["-Q", "1", "victim"], ["--posix.odirec"], ["--hdf5.x"], ["-g=x"], ["-h"],
        ["-Q"], ["-J", "-o"], ["--posix.rangelocks=/x"], ["-N", "1"], ["--dfs.svcl", "x"],
    )),
    *((MdtestOptions, {"extra_arguments": words}) for words in (
        ["--mpiio.hintsFileName=x"], ["--rados.pool=other"], ["-d", "/x"], ["-x", "x"],
        ["--run-cmd-before-phase=reboot"], ["--savePerOpDataCSV=x"], ["--S3.host=x"], ["victim"],
        ["-=dfs.pool"], ["-R=victim"], ["--time_unique_dir_overhead=x"], ["--=x"],
        ["--posix.rangelocks=/x"],
    )),
    *((FioOptions, {"size": 4096, "extra_arguments": words}) for words in (
        ["--buffer_pattern='x'"], ["--buffer-pattern='x'"], ["--buffer_pat='x'"],
        ["--log_store_compressed=1"], ["--write_lat_lo=x"], ["--exec_pre=x"], ["--outp=x"],
        ["--allow_mounted_write=1"], ["--debug=file"], ["--alloc-size=1"], ["--cmdhelp=all"],
        ["--idle-prof=system"], ["--max-jobs=9"], ["--ioengine=external:x"], ["--engine=x"],
        ["--aux-pa=x"], ["--thinkt=5"], ["--dump_read_iolog"], ["--no_such=1"],
    )),
    *((FioOptions, {"job": f"[a]\nsize=1m\n{line}\n"}) for line in (
        "buffer_pattern='x'", "replay_align=1", "zoneskip=1", "no_such=1", "hostname=x",
        "port=1", "chunk_size=1", "write_iops_lo=x", "log_hist_msec=1", "netns=x", "volume=x",
    )),
    *((DbenchOptions, {"extra_arguments": words}) for words in (
        ["5"], ["--tcp-options=x"], ["-T", "x"], ["--nfs=nfs://x"], ["--iscsi-lun=0"], ["--load=x"],
        ["-xc", "x"], ["--"], ["-R"], ["--smb-share=x"], ["-?"],
    )),
    *((RadosOptions, {"pool": "p", "client_options": {name: "x"}}) for name in (
        "plugin_dir", "erasure_code_dir", "mon_dns_srv_name", "client_trace", "osd_class_dir",
        "rados_tracing_file", "heap_profiler",
    )),
]  # fmt: skip


@pytest.mark.parametrize(("model", "given_"), BAD, ids=str)
def test_what_is_not_listed_is_refused(model: type[Any], given_: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(given_)


GOOD: list[tuple[type[Any], dict[str, Any]]] = [
    (
        IorOptions,
        {"extra_arguments": ["-g", "-Q", "1", "-X", "-5", "-J", "4k", "--posix.rangelocks"]},
    ),
    (IorOptions, {"extra_arguments": ["--posix.lustre.stripecount=4", "-vv", "-M", "10%"]}),
    (MdtestOptions, {"extra_arguments": ["--random-seed=5", "-R", "--posix.rangelocks"]}),
    (FioOptions, {"size": 4096, "extra_arguments": ["--thinktime=5", "--iodepth-batch=4"]}),
    (FioOptions, {"job": "[a]\nsize=1m\nrw=randread\nthinktime=5\ndedupe_percentage=10\n"}),
    (DbenchOptions, {"extra_arguments": ["--stat-check", "-x", "-R", "5.5"]}),
    (RadosOptions, {"pool": "p", "client_options": {"rados_osd_op_timeout": 30}}),
]


@pytest.mark.parametrize(("model", "given_"), GOOD, ids=str)
def test_what_is_listed_passes(model: type[Any], given_: dict[str, Any]) -> None:
    passed = model.model_validate(given_).model_dump(mode="json")
    assert {name: passed[name] for name in given_} == given_


PARTS = st.sampled_from(
    ["-", "--", "=", "g", "f", "o", "U", "O", "Q", "1", "victim", "posix.", "rangelocks",
     "dfs.pool", "hintsFileName", "mpiio.", "filename", "exec_prerun", "thinktime",
     "buffer_pattern", "5"]
)  # fmt: skip
WORD = st.lists(PARTS, max_size=5).map("".join)


@given(st.lists(WORD, max_size=4))
def test_no_word_slips_through(words: list[str]) -> None:
    if not WORDS.refusal(words):
        assert not any(re.search("victim|dfs|hints|^-[fUoO]", word) for word in words)
    for model, names in ((FioOptions, FREE), (DbenchOptions, None), (MdtestOptions, None)):
        more = {"size": 4096} if model is FioOptions else {}
        try:
            model.model_validate({**more, "extra_arguments": words})
        except ValidationError:
            continue
        for word in words:
            assert not re.search("victim|filename|exec|pattern|dfs|hints", word)
            if names is not None:
                assert word[2:].partition("=")[0].replace("-", "_") in names


@given(st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=20))
def test_no_key_of_a_job_slips_through(name: str) -> None:
    try:
        FioOptions.model_validate({"job": f"[a]\nsize=1m\n{name}=1\n"})
    except ValidationError:
        return
    assert name in OF_JOBS


def test_no_listed_name_is_one_that_the_suite_owns() -> None:
    from fsmatrix.suite.workloads.fio_options import OWNED

    assert not FREE & set(OWNED)
    told = {name for name in OF_JOBS if re.search("file|dir|log|path|exec|device", name)}
    assert told == {
        "direct",
        "file_service_type",
        "lockfile",
        "nr_files",
        "nrfiles",
        "openfiles",
        "registerfiles",
        "sync_file_range",
        "unique_filename",
    }
    assert not {name for name in EXTRA | MODULES if re.search("hints|pool|cont|cmd|csv", name)}


@pytest.mark.skipif(shutil.which("fio") is None, reason="no fio")
def test_fio_itself_reads_a_file_by_a_pattern_in_quotes(tmp_path: Path) -> None:
    """Why buffer_pattern is not listed: the foreign file's text ends up in the data."""
    (tmp_path / "secret").write_text("TOPSECRET")
    argv = [
        "fio",
        "--name=a",
        "--rw=write",
        "--size=4k",
        "--bs=4k",
        "--filename=out",
        f"--buffer_pattern='{tmp_path}/secret'",
    ]
    ran = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    if ran.returncode:
        pytest.skip("this fio takes no file as a pattern")
    assert b"TOPSECRET" in (tmp_path / "out").read_bytes()


def test_a_loadfile_with_absolute_names_stays_in_dbenchs_directory(tmp_path: Path) -> None:
    if shutil.which("dbench") is None:
        pytest.skip("no dbench")
    work = tmp_path / "work"
    work.mkdir()
    load = tmp_path / "load.txt"
    load.write_text(
        'NTCreateX "/fsmatrix-escape" 0x0 0x5 1 NT_STATUS_OK\n'
        "WriteX 1 0 100 100 NT_STATUS_OK\nClose 1 NT_STATUS_OK\n"
    )
    argv = ["dbench", "-D", str(work), "-c", str(load), "-t", "2", "--skip-cleanup", "1"]
    subprocess.run(argv, capture_output=True, check=False, timeout=PATIENCE)
    assert (work / "fsmatrix-escape").exists()
    assert not Path("/fsmatrix-escape").exists()
