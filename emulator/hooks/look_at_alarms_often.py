"""Runs inside LocalStack at start: an alarm is looked at every ten seconds, whatever its periods are.

LocalStack evaluates an alarm first when its periods have passed since it was made, and then once in as long, so that a
test waits a minute for what is there. What an evaluation computes, and of which minutes, stays LocalStack's. This
modifies the emulator, and the contract run reports it as modified.
"""

from localstack.services.cloudwatch import alarm_scheduler

_SECONDS_MAX = 10


class _Scheduler(alarm_scheduler.Scheduler):
    def schedule(self, *args, period, **kwargs):
        return super().schedule(*args, period=min(period, _SECONDS_MAX), **kwargs)


alarm_scheduler.Scheduler = _Scheduler
