# SPDX-License-Identifier: Apache-2.0
"""The engine that this machine runs on, asked whether it will take the machine away.

Each cloud has an address that only its own machines reach, and says there in its own way what it is
about to do. It is asked every few seconds, by a thread, so that an answer that does not come holds
nothing up. What is asked, and what the answers mean:

    aws    EC2, "Spot Instance interruption notices": 404, or a JSON object with a `time`
    gce    Compute Engine, "Preemptible VM instances" and "Monitor and plan for a host maintenance
           event": TRUE or FALSE, and NONE or what is to happen
    azure  Virtual Machines, "Scheduled Events": a list, of this machine and of others beside it
"""

import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException

from trainmover.agent.notice import seconds_left
from trainmover.escaping import one_line

ASK_EVERY_S = 5.0
ANSWER_S = 2.0
READ_MAX = 64 * 1024
ENDS = {"Preempt", "Terminate", "Reboot", "Redeploy"}
"""Of Azure's events; a `Freeze` is over after some seconds."""


def _get(url: str, headers: Mapping[str, str], method: str = "GET") -> str | None:
    """The answer; None: there is nothing of that kind. Raises OSError where nobody answers. No
    proxy knows of these addresses."""
    request = urllib.request.Request(url, headers=dict(headers), method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=ANSWER_S) as answer:
            text: str = answer.read(READ_MAX).decode(errors="replace")
            return text.strip()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def ask_aws(base: str, usual_s: float, now: datetime) -> float | None:
    """Seconds that are left; None: it stays. Raises OSError, as the others do."""
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = _get(f"{base}/latest/api/token", ttl, "PUT") or ""
    asked = {"X-aws-ec2-metadata-token": token}
    text = _get(f"{base}/latest/meta-data/spot/instance-action", asked)
    if text is None:
        return None
    left_s = seconds_left(text, usual_s, now)
    return usual_s if left_s is None else left_s


def ask_gce(base: str, usual_s: float, now: datetime) -> float | None:
    asked = {"Metadata-Flavor": "Google"}
    instance = f"{base}/computeMetadata/v1/instance"
    taken = _get(f"{instance}/preempted", asked) == "TRUE"
    event = _get(f"{instance}/maintenance-event", asked) or "NONE"
    ends = event.startswith(("TERMINATE", "SHUTDOWN"))  # It goes on after a migration.
    return usual_s if taken or ends else None


def ask_azure(base: str, usual_s: float, now: datetime) -> float | None:
    asked = {"Metadata": "true"}
    name = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
    me = _get(base + name, asked) or ""
    told = _get(f"{base}/metadata/scheduledevents?api-version=2020-07-01", asked) or "{}"
    return azure_left_s(told, me, now)


def azure_left_s(text: str, me: str, now: datetime) -> float | None:
    """Of the events that it tells of: to the first that ends this machine.

    >>> now = datetime(2026, 11, 23, 22, 0, tzinfo=UTC)
    >>> event = {"EventType": "Preempt", "Resources": ["vm1"]}
    >>> event["NotBefore"] = "Mon, 23 Nov 2026 22:00:30 GMT"
    >>> told = json.dumps({"Events": [event]})
    >>> [azure_left_s(said, me, now) for said, me in ((told, "vm1"), (told, "vm2"), ("{", "vm1"))]
    [30.0, None, None]
    """
    try:
        events = json.loads(text).get("Events", [])
        mine = [one for one in events if me in one["Resources"] and one["EventType"] in ENDS]
        return min((_until_s(one.get("NotBefore", ""), now) for one in mine), default=None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _until_s(moment: str, now: datetime) -> float:
    """Nothing is said of one that has begun."""
    return max((parsedate_to_datetime(moment) - now).total_seconds(), 0.0) if moment else 0.0


Ask = Callable[[str, float, datetime], float | None]
ENGINES: dict[str, tuple[str, Ask]] = {
    "aws": ("http://169.254.169.254", ask_aws),
    "gce": ("http://metadata.google.internal", ask_gce),
    "azure": ("http://169.254.169.254", ask_azure),
}


class Engine:
    """name: as in `ENGINES`; base: where it answers. tell(seconds left): called by its thread, once
    for each notice. usual_s: what is left where it does not say."""

    def __init__(
        self,
        name: str,
        usual_s: float,
        tell: Callable[[float], object],
        *,
        base: str = "",
        every_s: float = ASK_EVERY_S,
    ) -> None:
        address, self._ask = ENGINES[name]
        self._name, self._base = name, base or address
        self._usual_s, self._tell, self._every_s = usual_s, tell, every_s
        self._over = threading.Event()
        self._told = self._complained = False
        threading.Thread(target=self._run, name="trainmover-engine", daemon=True).start()

    def close(self) -> None:
        """It is asked no more; nobody waits for what was asked."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            left_s = self._left_s()
            if left_s is not None and not self._told and not self._over.is_set():
                self._tell(left_s)
            self._told = left_s is not None
            self._over.wait(self._every_s)

    def _left_s(self) -> float | None:
        try:
            return self._ask(self._base, self._usual_s, datetime.now(UTC))
        except (OSError, ValueError, HTTPException) as error:
            self._complain(error)
            return None

    def _complain(self, error: Exception) -> None:
        """Once: it may be away for a moment, and is asked on."""
        if self._complained:
            return
        self._complained = True
        print(
            f"{self._name} does not say at {self._base} whether this machine will be taken away: "
            f"{one_line(str(error))}.\nThe job goes on; without an answer there is no notice.\n"
            "Leave --notice-from out if this machine does not run there.",
            file=sys.stderr,
            flush=True,
        )
