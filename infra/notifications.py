"""Who hears of what: one file, made into Prefect's blocks and automations.

The file is `notifications.yaml` in this folder, which tells nobody, or the one that
MENAGERIE_NOTIFICATIONS names. It holds no secrets: an address comes from the variable that it
names.
"""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from prefect.blocks.notifications import CustomWebhookNotificationBlock, SlackWebhook
from pydantic import Field, SecretStr, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from flows.outcome.mail import MailNotification
from flows.outcome.notices import Notice
from infra.notifications_file import notifications_file
from zoo.base_models import Frozen
from zoo.errors import UsageError

if TYPE_CHECKING:
    from prefect.blocks.core import Block

PREFIX = "menagerie-tell-"  # of names of blocks and automations that come from the file


class Kind(StrEnum):
    """How somebody hears, each by an integration that Prefect or Apprise keeps."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    MAIL = "mail"


class Subject(StrEnum):
    """Of what somebody hears."""

    FAILURES = "failures"
    REFUTED = "refuted"
    REBUILT = "rebuilt"
    LATE_POOL = "late-pool"
    STORE = "store"


_EVENTS = {
    Subject.FAILURES: Notice.FAILURES.value,
    Subject.REFUTED: Notice.REFUTED.value,
    Subject.REBUILT: Notice.REBUILT.value,
    Subject.LATE_POOL: "prefect.work-pool.not-ready",
    Subject.STORE: Notice.STORE.value,
}
_TEXTS = dict.fromkeys(Subject, ("{{ event.payload.subject }}", "{{ event.payload.body }}"))
_NOBODY_THERE = """\
None of its workers was heard of for a while, so what is due there waits.

`zoo status`, or the worker's log on its host, say why; the runbook says what to do.
"""
_TEXTS[Subject.LATE_POOL] = ("No worker in pool {{ work_pool.name }}", _NOBODY_THERE)


class Channel(Frozen):
    """A way to somebody; `url_from` names the variable with its address, which is a secret."""

    name: str = Field(pattern="^[a-z][a-z0-9-]{0,30}$")
    kind: Kind
    url_from: str = Field(pattern="^[A-Z][A-Z0-9_]*$")
    about: tuple[Subject, ...] = tuple(Subject)

    def block(self) -> Block:
        """What sends.

        Raises:
            UsageError: the variable is not set.
        """
        address = os.environ.get(self.url_from)
        if not address:
            advice = f"Set it to the address of the channel {self.name}, and apply again"
            raise UsageError(self.url_from, "is not set", advice)
        if self.kind is Kind.SLACK:
            return SlackWebhook(url=SecretStr(address))
        if self.kind is Kind.MAIL:
            return MailNotification(url=SecretStr(address))
        return CustomWebhookNotificationBlock(
            name=self.name,
            url="{{address}}",
            json_data={"subject": "{{subject}}", "body": "{{body}}"},
            secrets={"address": address},
        )


class Notifications(Frozen):
    """Who hears of what."""

    channels: tuple[Channel, ...] = ()

    def automations(self, blocks: dict[str, str]) -> list[dict[str, Any]]:
        """As Prefect's API takes them: one for each subject that anybody wants to hear of.

        Args:
            blocks: ids of the channels' block documents, by the channels' names.
        """
        found = []
        for subject in Subject:
            channels = [c for c in self.channels if subject in c.about]
            if not channels:
                continue
            title, body = _TEXTS[subject]
            found.append(
                {
                    "name": f"{PREFIX}{subject}",
                    "description": f"Tells {', '.join(c.name for c in channels)}.",
                    "enabled": True,
                    "trigger": {
                        "type": "event",
                        "posture": "Reactive",
                        "expect": [_EVENTS[subject]],
                        "for_each": ["prefect.resource.id"],
                        "threshold": 1,
                        "within": 0,
                    },
                    "actions": [
                        {
                            "type": "send-notification",
                            "block_document_id": blocks[channel.name],
                            "subject": f"Menagerie: {title}",
                            "body": body,
                        }
                        for channel in channels
                    ],
                }
            )
        return found


def load_notifications() -> Notifications:
    """What the file says.

    Raises:
        UsageError: it cannot be read, or says something that cannot be.
    """
    path = notifications_file()
    try:
        return Notifications.model_validate(YAML(typ="safe").load(path) or {})
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise UsageError(f"{path}: {where}", fault["msg"]) from error
    except (OSError, YAMLError) as error:
        first = str(error).strip().splitlines()[0]
        raise UsageError(str(path), f"cannot be read ({first})") from error
