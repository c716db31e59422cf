"""Scale-in protection: ECS stops another task, or waits, while this task works on messages.

The worker says again and again whether it is busy; the agent is told when that changes and before its protection
expires. Protection is a courtesy and not a promise: a task that is stopped nevertheless finishes or releases the
messages that it holds. Therefore nothing here raises: an agent that does not answer is called again later, and
protection ends by itself.

A rolling update does not end a protected task of the old version, and CloudFormation gives up after three hours.
Therefore a worker that always has work is left unprotected for a moment now and then.

AWS: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection-endpoint.html (a refusal by
ECS is an answer of HTTP 200 with `failure` in place of `protection`; by IAM, or in time, `error`),
https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection.html (rolling updates),
https://docs.aws.amazon.com/AmazonECS/latest/APIReference/API_UpdateTaskProtection.html (each call counts the minutes
anew),
https://github.com/aws/amazon-ecs-agent/blob/master/ecs-agent/tmds/handlers/taskprotection/v1/handlers/handlers.go (the
agent refuses fields it does not know) (read 2026-11-21).
"""

import functools
import json
from http.client import HTTPException
from math import inf
from urllib.error import HTTPError
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

from sluice.clock import Clock
from sluice.messaging.backoff import Backoff
from sluice.terminal.logger import Logger

_log = Logger()
_EXPIRES_MINUTES = 10
_RENEW_SECONDS = _EXPIRES_MINUTES * 60 / 2
_IDLE_SECONDS = 5  # a worker without a message for this time is idle
_REST_SECONDS = 60
_ANSWER_BYTES_MAX = 65_536
_RETRY = Backoff(base_seconds=5, cap_seconds=120, floor_seconds=5)


class Protection:
    """Protects the worker's task from scale-in while the worker is busy. One thread uses it.

    Args:
        agent_uri: ECS_AGENT_URI of the task; None outside ECS, and then nothing is done.
        busy_seconds_max: longest protection without a pause, longer than a handler takes; an update waits for the
            pause.
    """

    def __init__(
        self, agent_uri: str | None, clock: Clock, *, busy_seconds_max: float = 1_800, timeout_seconds: float = 5
    ) -> None:
        self._url = None if agent_uri is None else f"{agent_uri}/task-protection/v1/state"
        self._clock = clock
        self._busy_seconds_max, self._timeout_seconds = busy_seconds_max, timeout_seconds
        self._busy_at, self._rest_until = -inf, -inf
        self._since: float | None = None
        self._renew_at, self._protected_until = -inf, -inf
        self._failure_count, self._retry_at = 0, -inf

    def want(self, *, is_busy: bool) -> None:
        """Note whether any lane works on a message, and tell the agent if that changes the protection.

        Runs: every second or so; safe to repeat. A call may take `timeout_seconds`: nothing urgent shares its thread.
        """
        now = self._clock.monotonic()
        if is_busy:
            self._busy_at = now
        is_wanted = self._is_wanted(now)
        is_due = now >= self._renew_at if is_wanted else now < self._protected_until
        if is_due and now >= self._retry_at:
            self._put(is_enabled=is_wanted)

    def stop(self) -> None:
        """End protection, if there may be any. The call is tried once, since protection expires by itself."""
        if self._clock.monotonic() < self._protected_until:
            self._put(is_enabled=False)

    def _is_wanted(self, now: float) -> bool:
        if now - self._busy_at >= _IDLE_SECONDS or now < self._rest_until:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        if now - self._since >= self._busy_seconds_max:
            self._rest_until = now + _REST_SECONDS
        return now >= self._rest_until

    def _put(self, *, is_enabled: bool) -> None:
        if self._url is None:
            return
        refused = self._request(self._url, is_enabled=is_enabled)
        now = self._clock.monotonic()
        if is_enabled:  # a request without an answer may have taken effect
            self._protected_until = now + _EXPIRES_MINUTES * 60
        if refused is None:
            self._failure_count, self._renew_at = 0, now + _RENEW_SECONDS if is_enabled else -inf
            self._protected_until = self._protected_until if is_enabled else -inf
        else:
            self._failure_count += 1
            self._retry_at = now + _RETRY.seconds(self._failure_count, 1)
            _log.warning(
                "scale-in protection was not changed; tried again later, and it expires by itself",
                is_enabled=is_enabled,
                failure_count=self._failure_count,
                refused=refused,
            )

    def _request(self, url: str, *, is_enabled: bool) -> str | None:
        """Send the request to the agent; return the reason of a failure, or None."""
        body: dict[str, object] = {"ProtectionEnabled": is_enabled}
        if is_enabled:
            body["ExpiresInMinutes"] = _EXPIRES_MINUTES
        try:
            request = Request(
                url, data=json.dumps(body).encode(), method="PUT", headers={"Content-Type": "application/json"}
            )
            answer = json.loads(self._send_request(request))
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            return f"{type(error).__name__}: {error}"
        return None if isinstance(answer, dict) and "protection" in answer else f"the agent says {answer!r:.500}"

    def _send_request(self, request: Request) -> bytes:
        try:
            answer = _opener().open(request, timeout=self._timeout_seconds)
        except HTTPError as error:  # the body has the reason
            answer = error
        with answer:
            answer_body: bytes = answer.read(_ANSWER_BYTES_MAX)
        return answer_body


@functools.cache
def _opener() -> OpenerDirector:
    """Return an opener without a proxy: the agent is on the task's own link, which a proxy cannot reach.

    It is made at the first request, since it reads certificates and most workers never need it; and only once, because
    making it takes longer than a request.
    """
    return build_opener(ProxyHandler({}))
