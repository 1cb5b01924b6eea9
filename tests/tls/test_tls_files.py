"""Certificates that are given, and those that are made: what is refused before anything starts."""

import os
import stat
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tls_files import HOSTS, expired, made

from trainmover.errors import UserError
from trainmover.launch.options import RunOptions
from trainmover.launch.runs import RunDirectory
from trainmover.launch.tls import certified
from trainmover.tls import libcrypto
from trainmover.tls.contexts import check
from trainmover.tls.files import TlsFiles, all_or_none
from trainmover.tls.making import LASTS, make


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    """Of its own, to be spoilt."""
    return make(tmp_path / "tls", "job", HOSTS)


def test_made_files_are_believed_and_the_key_is_for_its_user_only(files: TlsFiles) -> None:
    ends = check(files, "127.0.0.1")
    assert abs(ends - datetime.now(UTC) - LASTS) < timedelta(hours=1)
    assert check(files, "localhost") == ends
    assert stat.S_IMODE(os.stat(files.key).st_mode) == 0o600
    assert stat.S_IMODE(Path(files.key).parent.stat().st_mode) == 0o700
    assert "PRIVATE KEY" not in Path(files.ca).read_text() + Path(files.cert).read_text()


def test_nobody_has_the_key_of_the_authority(files: TlsFiles) -> None:
    kept = sorted(path.name for path in Path(files.key).parent.iterdir())
    assert kept == ["ca.pem", "cert.pem", "key.pem"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_key_that_others_can_reach_is_refused(files: TlsFiles, mode: int) -> None:
    os.chmod(files.key, mode)
    with pytest.raises(UserError, match=f"open to other users .mode {mode:04o}.") as refusal:
        check(files, "127.0.0.1")
    assert refusal.value.do == f"chmod 600 {files.key}"


def test_a_key_that_is_encrypted_is_refused_and_nobody_is_asked(files: TlsFiles) -> None:
    from cryptography.hazmat.primitives import serialization as s

    key = s.load_pem_private_key(Path(files.key).read_bytes(), None)
    pem, form = s.Encoding.PEM, s.PrivateFormat.PKCS8
    Path(files.key).write_bytes(key.private_bytes(pem, form, s.BestAvailableEncryption(b"secret")))
    with pytest.raises(UserError, match="is encrypted"):
        check(files, "127.0.0.1")


@pytest.mark.parametrize("which", ["cert", "key", "ca"])
@pytest.mark.parametrize("how", ["missing", "noise", "empty"])
def test_a_file_that_is_none_is_named(files: TlsFiles, which: str, how: str) -> None:
    path = Path(getattr(files, which))
    path.write_bytes(b"noise" if how == "noise" else b"")
    if how == "missing":
        path.unlink()
    with pytest.raises(UserError, match=str(path)) as refusal:
        check(files, "127.0.0.1")
    assert "Nothing was started" in refusal.value.means


UNFIT = {
    "another's key": ("key", made("another").key, "does not belong to the certificate"),
    "another authority": ("ca", made("another").ca, "unable to get local issuer certificate"),
}


@pytest.mark.parametrize("what", UNFIT)
def test_files_that_do_not_belong_together_are_refused(files: TlsFiles, what: str) -> None:
    which, other, why = UNFIT[what]
    given = {name: getattr(files, name) for name in ("cert", "key", "ca")} | {which: other}
    with pytest.raises(UserError, match=why):
        check(TlsFiles(**given), "127.0.0.1")


def test_one_that_is_not_for_this_host_or_out_of_date_is_refused(files: TlsFiles) -> None:
    with pytest.raises(UserError, match=r"not valid for '10\.0\.0\.9'"):
        check(files, "10.0.0.9")
    with pytest.raises(UserError, match="certificate has expired"):
        check(expired(), "127.0.0.1")


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        (("c", "", ""), "--tls-key and --tls-ca are missing"),
        (("c", "k", ""), "--tls-ca is missing"),
        (("", "k", "a"), "--tls-cert is missing"),
    ],
)
def test_all_three_are_given_or_none(given: tuple[str, str, str], missing: str) -> None:
    with pytest.raises(UserError, match=missing):
        all_or_none(*given)
    assert all_or_none("", "", "") is None
    assert all_or_none("c", "k", "a") == TlsFiles(cert="c", key="k", ca="a")


def test_workers_are_told_in_their_environment(files: TlsFiles) -> None:
    assert TlsFiles.of_environment(files.environment()) == files
    assert TlsFiles.of_environment({}) is None


def test_a_run_says_what_is_encrypted_and_what_is_not(tmp_path: Path) -> None:
    directory = RunDirectory.create("job", tmp_path / "run")
    none = certified(RunOptions(argv=["x"]), directory)
    assert (none.files, none.notes) == (None, [])
    own = certified(RunOptions(argv=["x"], tls=True, comm="native"), directory)
    assert own.files is not None
    assert Path(own.files.key).parent == directory.path / "tls"
    (said,) = own.notes
    assert "encrypted, and what ranks on different hosts exchange in collectives" in said
    assert "store on each host is not" in said
    gloo = RunOptions(argv=["x"], tls_files=own.files, comm="gloo")
    (said,) = certified(gloo, directory).notes
    assert "collectives, and torch's store on each host, are not" in said


def test_without_a_libcrypto_collectives_are_not_silently_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory.create("job", tmp_path / "run")
    options = RunOptions(argv=["x"], tls_files=made("job"), comm="native")
    assert "libcrypto" in libcrypto.path()
    monkeypatch.setattr(libcrypto, "_MAPPED", Path("/dev/null"))
    monkeypatch.setattr("ctypes.util.find_library", lambda _: None)
    with pytest.raises(UserError, match="no libcrypto") as refusal:
        certified(options, directory)
    assert "--comm gloo" in refusal.value.do
    assert certified(replace(options, comm="gloo"), directory).files is not None


def test_a_certificate_that_soon_ends_is_told(tmp_path: Path) -> None:
    soon = made("soon", lasts=timedelta(days=3))
    directory = RunDirectory.create("job", tmp_path / "run")
    options = RunOptions(argv=["x"], tls_files=soon)
    assert "the certificate ends on" in certified(options, directory).notes[1]


def test_on_several_hosts_the_certificate_must_name_them(tmp_path: Path) -> None:
    directory = RunDirectory.create("job", tmp_path / "run")
    with pytest.raises(UserError, match="for this host only"):
        certified(RunOptions(argv=["x"], bind="10.0.0.9:5000", tls=True), directory)
    options = RunOptions(argv=["x"], bind="10.0.0.9:5000", tls_files=made("job"))
    with pytest.raises(UserError, match=r"not valid for '10\.0\.0\.9'"):
        certified(options, directory)
    both = made("both", ("10.0.0.9", "127.0.0.1"))
    options = RunOptions(argv=["x"], bind="10.0.0.9:5000", tls_files=both)
    assert certified(options, directory).files == both


def test_without_the_library_a_given_certificate_is_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trainmover.tls.making", None)
    directory = RunDirectory.create("job", tmp_path / "run")
    with pytest.raises(UserError, match="`cryptography` is missing") as refusal:
        certified(RunOptions(argv=["x"], tls=True), directory)
    assert "trainmover[tls]" in refusal.value.do
