"""A notification block for e-mail over any SMTP server, which Prefect itself has not.

Servers and workers find it by the entry point `prefect.collections` of this distribution; what
sends the mail is Apprise, as in Prefect's own blocks.
"""

from __future__ import annotations

import re
from typing import Any

from apprise import NotifyFormat
from prefect.blocks.notifications import AppriseNotificationBlock
from pydantic import Field, SecretStr


class MailNotification(AppriseNotificationBlock):
    """Sends notifications by e-mail.

    Attributes:
        url: Apprise's form, `mailtos://user:password@smtp.example.org/?from=a@example.org&to=b@…`;
            `mailto://` speaks no TLS.
    """

    _block_type_name = "Menagerie e-mail"
    _block_type_slug = "menagerie-mail"

    url: SecretStr = Field(
        title="Address of the server",
        description="mailtos://user:password@smtp.example.org/?from=a@example.org&to=b@example.org",
    )

    def _start_apprise_client(self, url: SecretStr) -> None:
        """What is sent is Markdown: a mail shows its table and links, and not their source."""
        super()._start_apprise_client(url)
        asset: Any = self._apprise_client.asset  # typed as if it stayed None
        asset.body_format = NotifyFormat.MARKDOWN

    def notify(self, body: str, subject: str | None = None) -> Any:
        """Send it; to be awaited where a loop runs, as Prefect's own."""
        return super().notify(_for_mail(body), subject)

    async def anotify(self, body: str, subject: str | None = None) -> None:
        """Send it."""
        await super().anotify(_for_mail(body), subject)


def _for_mail(body: str) -> str:
    """Apprise's Markdown is an older one, in which a backslash escapes fewer signs."""
    return re.sub(r"\\([<>~&:@])", lambda found: f"&#{ord(found[1])};", body)
