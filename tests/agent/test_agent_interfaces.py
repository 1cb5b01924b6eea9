"""The interface on which this machine is reached by the others."""

from trainmover.agent.interfaces import interface_of


def test_an_address_of_this_host_has_an_interface() -> None:
    assert interface_of("127.0.0.1") == "lo"


def test_an_address_of_another_host_has_none() -> None:
    assert interface_of("192.0.2.1") == ""
    assert interface_of("a.name") == ""
