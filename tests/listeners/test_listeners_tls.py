"""Listeners that speak TLS, those that do not, and who comes to the wrong one: told so at once."""

from pathlib import Path

import pytest
from open_listeners import LISTENERS, opened
from tls_files import expired, made

from trainmover.errors import ProtocolError, TrainmoverError
from trainmover.tls.files import TlsFiles

IN_TLS = [name for name, (_, in_tls) in LISTENERS.items() if in_tls]
PLAIN = [name for name, (_, in_tls) in LISTENERS.items() if not in_tls]


@pytest.mark.parametrize("name", PLAIN)
def test_who_speaks_tls_at_a_plain_listener_is_told(name: str, tmp_path: Path) -> None:
    with opened(name, tmp_path / "journal.sqlite") as listener:
        with pytest.raises(ProtocolError, match="does not speak TLS"):
            listener.come(made("job"))
        listener.enter()


@pytest.mark.parametrize("name", IN_TLS)
def test_who_speaks_plainly_at_a_listener_with_tls_is_told(name: str, tmp_path: Path) -> None:
    with opened(name, tmp_path / "journal.sqlite") as listener:
        with pytest.raises(TrainmoverError) as refusal:
            listener.come(None)
        if not name.startswith("api"):  # A client of HTTP hears that it is none, in its own words.
            assert isinstance(refusal.value, ProtocolError)
            assert "speaks TLS, and this connection does not" in str(refusal.value)
        listener.enter()


UNBELIEVABLE = {
    "another authority": (made("job"), "unable to get local issuer certificate"),
    "another host": (made("elsewhere", ("10.0.0.1", "example.org")), "IP address mismatch"),
    "its time is over": (expired(), "certificate has expired"),
}


@pytest.mark.parametrize("name", IN_TLS)
@pytest.mark.parametrize("what", UNBELIEVABLE)
def test_a_listener_that_is_not_the_jobs_is_not_believed(
    name: str, what: str, tmp_path: Path
) -> None:
    files, why = UNBELIEVABLE[what]
    believed = made("another job") if what == "another authority" else files
    with opened(name, tmp_path / "journal.sqlite", files) as listener:
        with pytest.raises(ProtocolError, match=why) as refusal:
            listener.come(TlsFiles(cert=files.cert, key=files.key, ca=believed.ca))
        assert "--tls-ca" in refusal.value.do
