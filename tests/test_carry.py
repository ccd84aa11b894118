"""Archives of finished seeds: what they take, what they refuse. (That runs use them: test_reuse.)"""

import io
import json
import tarfile
from pathlib import Path

import pytest

from rlnlp.settings import ConfigError
from workbook.stages import carry, reproduce
from workbook.store.files import is_sealed


def archive(folder: Path, files: dict[str, bytes], **about) -> Path:
    path = folder / "finished" / "0001.tar.xz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:xz") as out:
        for name, said in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(said)
            for key, value in about.items():
                setattr(member, key, value)
            out.addfile(member, io.BytesIO(said))
    return path


SEED = "runs/ppo/seed1-0123456789abcdef/final"
ROW = "tune/ppo/lr0.001-kl0.05-0123456789abcdef/row.json"


def test_what_is_there_already_stays_as_it_is(tmp_path):
    archive(tmp_path, {f"{SEED}/per_seed.csv": b"carried", ROW: b"{}"})
    mine = tmp_path / "scratch" / SEED / "per_seed.csv"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert carry.unpack(tmp_path, tmp_path / "scratch") == 1
    assert mine.read_text() == "mine" and json.loads((tmp_path / "scratch" / ROW).read_text()) == {}


def test_of_a_prompt_no_more_is_packed_than_tables_show(tmp_path):
    final, place = tmp_path / "seed1-0" / "final", tmp_path / "packed"
    final.mkdir(parents=True)
    text = {"prompt": " ".join(str(n) for n in range(300)), "response": "x"}
    (final / "per_seed.csv").write_text("seed\n1\n")
    (final / "curves.csv").write_text("")
    (final / "samples.json").write_text(json.dumps([text, text]))
    (final / "episode.json").write_text(json.dumps(text))
    carry._slim(final, place, 1)
    kept = {**text, "prompt": "… " + " ".join(str(n) for n in range(280, 300))}
    assert json.loads((place / "samples.json").read_text()) == [kept, kept]
    assert json.loads((place / "episode.json").read_text()) == kept and is_sealed(place)


OTHERS = ["../out.csv", "/out.csv", f"{SEED}/../../../../x", "runs/ppo/x.csv", f"{SEED}/a/b.csv"]


@pytest.mark.parametrize("name", OTHERS)
def test_an_archive_of_anything_else_is_refused_and_nothing_is_written(tmp_path, name):
    archive(tmp_path / "profile", {f"{SEED}/per_seed.csv": b"1", name: b"1"})
    with pytest.raises(ConfigError, match="0001.tar.xz: expected finished seeds and candidates alone, found"):
        carry.unpack(tmp_path / "profile", tmp_path / "scratch")
    assert not [path for path in tmp_path.rglob("*.csv")]


def test_a_link_is_refused(tmp_path):
    archive(tmp_path, {f"{SEED}/per_seed.csv": b""}, type=tarfile.SYMTYPE, linkname="/etc/passwd")
    with pytest.raises(ConfigError, match="expected finished seeds"):
        carry.unpack(tmp_path, tmp_path / "scratch")


def test_a_damaged_archive_is_named_before_any_work(tmp_path, capsys):
    path = archive(tmp_path / "profiles" / "mine", {f"{SEED}/per_seed.csv": bytes(range(256)) * 40})
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (path.parents[1] / "dvc.yaml").write_text("stages: {}\n")
    assert reproduce.main(["mine", "--root", str(tmp_path)]) != 0
    assert "0001.tar.xz: not a whole archive" in capsys.readouterr().err
