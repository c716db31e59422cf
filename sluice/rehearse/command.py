"""The command `rehearse`: it tries the scaling on a day of traffic before the deployment."""

import difflib
import importlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from sluice.declaration import Consumer, Declaration, Environment, load_declaration, naming
from sluice.declaration.metric_math import Term, metric_ids
from sluice.errors import ConfigError
from sluice.judge.checker.verdict import EXIT_CROSSED
from sluice.rehearse import report
from sluice.rehearse.advice import Advice, advise
from sluice.rehearse.alternatives import OWN_METRICS
from sluice.rehearse.declared_service import service_of, tasks_of
from sluice.rehearse.experiment import Experiment
from sluice.rehearse.mistakes import mistakes
from sluice.rehearse.model.policies import ScaledService
from sluice.rehearse.model.scenarios import Scenario, scenarios
from sluice.rehearse.model.simulation import TO_EXPRESSIONS, TaskWork, simulated_series
from sluice.rehearse.reading.cloudformation import load_template
from sluice.rehearse.reading.expressions import parse
from sluice.rehearse.reading.sources import read_parameters, synthesized_templates
from sluice.rehearse.reading.template import read_services
from sluice.rehearse.rehearsal import LARGE, ProgressWatcher, Rehearsal, simulate_all
from sluice.terminal import output
from sluice.terminal.exits import PARTLY
from sluice.terminal.files import require_writable
from sluice.terminal.options import declaration_option
from sluice.terminal.values import NumberType, Whole

_TRAFFIC = (
    "steady",
    "burst",
    "sparse",
    "hot-group",
    "few-groups",
    "long-jobs",
    "poison",
    "outage",
    "half-outage",
    "day",
)
_GROUPS = 100
_RECORDED_TRAFFIC = "spark_load.traffic"
"""The module that reads traffic of profiles and recordings, by name, because the library may not import load tests."""
_WORK_OPTIONS = {"lanes": "--lanes", "handler_seconds": "--handler-seconds", "acceptable_latency_seconds": "--latency"}
"""Each field of `TaskWork` that no template contains, to the option that sets it."""
_SIMULATED = tuple(dict.fromkeys(TO_EXPRESSIONS.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """Options of the command line about tasks and traffic; None for an option that was not given."""

    lanes: int | None
    handler_seconds: float | None
    acceptable_latency_seconds: float | None
    groups: int | None
    start_seconds: float
    own: Mapping[tuple[str, str], Term]
    profile_name: str | None
    recording: Path | None
    traffic: Sequence[str]
    seed: int
    queue: str | None
    parameter: Sequence[str]
    parameters: Path | None

    @property
    def work(self) -> Mapping[str, Any]:
        """Return the given fields of `TaskWork`, by name."""
        return {field: value for field in _WORK_OPTIONS if (value := getattr(self, field)) is not None}


class _Rehearse(click.Command):
    """The command, which keeps its arguments as they were given, because the page shows them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the command line for the page, and parse the arguments."""
        ctx.meta["command"] = shlex.join([*ctx.command_path.split(), *args])
        return super().parse_args(ctx, args)


type _OwnMetrics = dict[tuple[str, str], Term]


def _read_own_metrics(_context: click.Context, _option: click.Parameter, texts: Sequence[str]) -> _OwnMetrics:
    """Return the expression of each `--metric NAMESPACE/NAME=EXPRESSION`; click calls this."""
    found = {}
    for text in texts:
        metric, equals, expression = text.partition("=")
        namespace, slash, name = metric.rpartition("/")
        if not (equals and slash and namespace and name):
            raise click.BadParameter(
                f"{text!r} is not NAMESPACE/NAME=EXPRESSION, such as 'Own/Load=visible / IF(running > 0, running, 1)'"
            )
        try:
            found[namespace, name] = parse(expression)
        except ConfigError as error:
            raise click.BadParameter(str(error)) from error
        unknown = [id_ for id_ in metric_ids(found[namespace, name]) if id_ not in _SIMULATED]
        if unknown:
            raise click.BadParameter(f"{text!r} names {unknown[0]}, allowed is any of {', '.join(_SIMULATED)}")
    return found


@click.command(cls=_Rehearse, short_help="Try the deployed scaling on a day of traffic.")
@click.argument("name", metavar="[ENV]", required=False)
@click.option(
    "--template",
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="A CloudFormation template, or a folder cdk.out, also of another project.  [default: ENV, synthesized]",
)
@click.option("--service", "service_name", metavar="NAME", help="Only this consumer, or this service of the template.")
@click.option("--queue", metavar="NAME", help="The queue its tasks receive from, where the template does not tell.")
@click.option("--parameter", multiple=True, metavar="NAME=VALUE", help="The value of a parameter of the template.")
@click.option(
    "--parameters",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Values of parameters, in JSON as the AWS CLI and CloudFormation read it.",
)
@click.option("--profile", "profile_name", metavar="PROFILE", help="The traffic of a load profile, by name or path.")
@click.option(
    "--recording", type=click.Path(path_type=Path, exists=True), metavar="DIR", help="The traffic of a recording."
)
@click.option(
    "--traffic",
    type=click.Choice(_TRAFFIC),
    multiple=True,
    help="Try this kind of traffic, beside alternatives.  [default: all kinds]",
)
@click.option("--lanes", type=Whole(1, 10_000), metavar="N", help="Messages a task works on at once.")
@click.option(
    "--handler-seconds", type=NumberType("seconds", 0.001, 43_200), metavar="SECONDS", help="How long a handler takes."
)
@click.option(
    "--latency",
    "acceptable_latency_seconds",
    type=NumberType("seconds", 0.01, 1_209_600),
    metavar="SECONDS",
    help="How long a message may take.  [default for these three: as ENV declares]",
)
@click.option("--groups", type=Whole(1, 10_000_000), metavar="N", help="Message groups active at a time.")
@click.option(
    "--start-seconds",
    type=NumberType("seconds", 0, 3_600),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="Time from the decision to run a task until it polls.",
)
@click.option(
    "--metric",
    "own",
    multiple=True,
    callback=_read_own_metrics,
    metavar="NAMESPACE/NAME=EXPRESSION",
    help=f"How to simulate a metric of your own, from {', '.join(_SIMULATED)}.",
)
@click.option("--seed", type=Whole(0), default=1, show_default=True, help="Seed of the drawn traffic.")
@click.option("--page", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw one HTML page.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON on standard output.")
@declaration_option
def rehearse(
    *,
    name: str | None,
    template: Path | None,
    service_name: str | None,
    page: Path | None,
    as_json: bool,
    declaration: Path | None,
    **given: object,
) -> None:
    """Try the scaling policies of ENV on traffic: queue, tasks, alarms and Application Auto Scaling are simulated.

    Policies, alarms and metric math are read from the synthesized template, so what is tried is what is deployed. Any
    template of ECS services on SQS metrics will do. Without --profile, --recording or --traffic all kinds of traffic
    are tried, sized by what the most tasks can do; with one, also the usual alternatives, and every variant of what AWS
    does not document. Known mistakes are found by name. Nothing is called on AWS.

    \b
    Exit codes: 0 fine, 1 a mistake was found, 2 could not, 3 wrong usage or refused,
    99 the declared latency is missed (its 95th percentile, sent to handled).

    \b
    Examples:
      sluice rehearse prod
      sluice rehearse prod --profile release-gate --page rehearsal.html
      sluice rehearse --template cdk.out --lanes 1 --handler-seconds 2 --latency 60
    """
    options = CommandOptions(**given)  # type: ignore[arg-type]
    _check_options(name, template, options)
    if page is not None:
        require_writable(page, "--page")
    declared = None if name is None else load_declaration(declaration)
    environment = None if name is None or declared is None else declared.environment(name)
    services = _read_services(template, environment, declared, options, service_name)
    subjects = _choose_subjects(services, environment, service_name)
    for subject in subjects:
        _require_queue(subject.service)
        _require_known_metrics(subject.service, options.own)
    with report.progress() as watch:
        done = [_rehearse_alike(alike, options, watch) for alike in _group_alike(subjects, options)]
    if as_json:
        by_name = {name: report.as_json(rehearsal, name) for rehearsal in done for name in rehearsal.names}
        output.as_json([by_name[subject.service.name] for subject in subjects])
    else:
        for rehearsal in done:
            report.print_rehearsal(rehearsal)
    if page is not None:
        _write_page(page, done, options.seed, f"{template or f'synthesized for {name}, as cdk.json says'}")
    if any(rehearsal.mistakes for rehearsal in done):
        sys.exit(PARTLY)
    if any(rehearsal.is_missed for rehearsal in done):
        sys.exit(EXIT_CROSSED)


def _write_page(path: Path, done: Sequence[Rehearsal], seed: int, template: str) -> None:
    """Write the page of all rehearsals and print where it is."""
    from sluice.rehearse import page  # noqa: PLC0415 (what draws takes a second to load, and few draw)

    command = click.get_current_context().meta["command"]
    page.write(path, done, page.Origin(command=command, seed=seed, template=template))
    output.line(f"page: {path}", is_error=True)


def _check_options(name: str | None, template: Path | None, options: CommandOptions) -> None:
    """Refuse options that contradict each other."""
    sources = {"--profile": options.profile_name, "--recording": options.recording, "--traffic": options.traffic}
    given = [option for option, value in sources.items() if value]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} are given, allowed is one of them")
    if name is None and template is None:
        raise ConfigError("neither ENV nor --template is given, needed is one of them; `sluice env` lists the former")
    missing = [option for field, option in _WORK_OPTIONS.items() if field not in options.work]
    if name is None and missing:
        raise ConfigError(f"without ENV no declaration tells how tasks work, needed are {', '.join(missing)}")


def _read_services(
    template: Path | None,
    environment: Environment | None,
    declared: Declaration | None,
    options: CommandOptions,
    service_name: str | None,
) -> Sequence[ScaledService]:
    """Return the scaled services of the given template, or of the template that is synthesized for the environment."""
    if template is not None:
        parameters = read_parameters(options.parameter, options.parameters)
        loaded = load_template(template)
        only = service_name if environment is None else None
        return read_services(
            *loaded.values(), names=tuple(loaded), parameters=parameters, queue=options.queue, only=only
        )
    assert environment is not None, "it was checked"
    assert declared is not None, "it was checked"
    with synthesized_templates(environment.name, declared) as folder:
        return _read_services(folder, environment, declared, options, service_name)


def _require_queue(service: ScaledService) -> None:
    """Refuse a service whose queue is unknown: the queue decides whether groups block each other."""
    if service.queue is None:
        candidates = ", ".join(service.queue_candidates)
        raise ConfigError(
            f"the template does not tell which queue the tasks of {service.name} receive from"
            f" ({candidates or 'it names none'}); name it with --queue, and the service with --service"
        )


def _require_known_metrics(service: ScaledService, own: Mapping[tuple[str, str], Term]) -> None:
    """Refuse a policy on a metric that nobody reports: the policy would never act."""
    for policy in service.policies:
        for metric in policy.watched.metrics.values():
            if simulated_series(metric) is None and (metric.namespace, metric.name) not in own:
                known = {name: f"; did you mean {namespace}/{name}?" for namespace, name in TO_EXPRESSIONS}
                close = "".join(known[name] for name in difflib.get_close_matches(metric.name, known, n=1))
                raise ConfigError(
                    f"policy {policy.name} of {service.name} looks at {metric.namespace}/{metric.name}, which is not"
                    f" simulated{close or ';'} say what it is: --metric"
                    f" '{metric.namespace}/{metric.name}=EXPRESSION', of {', '.join(_SIMULATED)}"
                )


@dataclass(frozen=True, slots=True)
class Subject:
    """A service, with the environment and the consumer that declare it, or None."""

    service: ScaledService
    environment: Environment | None = None
    consumer: Consumer | None = None

    @property
    def name(self) -> str:
        """Return the name of the service for `--service`."""
        return self.service.name if self.consumer is None else self.consumer.name

    def tasks(self, options: CommandOptions) -> TaskWork:
        """Return how its tasks work: as its consumer declares, or as the command line says."""
        if self.consumer is not None:
            return replace(tasks_of(self.consumer), start_seconds=options.start_seconds, **options.work)
        if len(options.work) < len(_WORK_OPTIONS):
            raise ConfigError(
                f"service {self.service.name} is no consumer of the declaration, needed are --lanes,"
                " --handler-seconds and --latency"
            )
        return TaskWork(start_seconds=options.start_seconds, **options.work)

    def groups(self, options: CommandOptions) -> int:
        """Return how many message groups are active at a time."""
        if options.groups is not None:
            return options.groups
        return _GROUPS if self.consumer is None else self.consumer.expected_groups

    def advice(self, scenarios: Sequence[Scenario]) -> Mapping[str, Advice]:
        """Return the advice for the consumer, by traffic.

        Empty if the template has another service than the declaration, and for a Lambda function.
        """
        if self.environment is None or self.consumer is None or self.consumer.runtime is not None:
            return {}
        if self.service != service_of(self.environment, self.consumer):
            return {}
        return {
            scenario.name: advise(self.environment, self.consumer, scenario.traffic)
            for scenario in scenarios
            if scenario.traffic.message_count <= LARGE and scenario.tasks == tasks_of(self.consumer)
        }


def _choose_subjects(
    services: Sequence[ScaledService], environment: Environment | None, service_name: str | None
) -> Sequence[Subject]:
    """Return the services with the given names; without names all, and of a declaration all consumers' services."""
    subjects = [Subject(service, environment) for service in services]
    if environment is not None:
        subjects = [
            Subject(service, environment, consumer)
            for consumer in environment.consumers
            for service in services
            if service.name == naming.service_name(environment, consumer.name)
        ] or subjects
    chosen = [subject for subject in subjects if service_name in {None, subject.name}]
    if not chosen:
        names = ", ".join(subject.name for subject in subjects)
        raise ConfigError(f"--service is {service_name!r}, allowed is one of {names}")
    return chosen


def _group_alike(subjects: Sequence[Subject], options: CommandOptions) -> Sequence[Sequence[Subject]]:
    """Return the services in groups that scale alike and whose tasks work alike."""
    found: list[tuple[object, list[Subject]]] = []
    for subject in subjects:
        key = (subject.service.without_names, subject.tasks(options), subject.groups(options))
        same = next((alike for other, alike in found if other == key), None)
        if same is None:
            found.append((key, [subject]))
        else:
            same.append(subject)
    return [alike for _, alike in found]


def _rehearse_alike(alike: Sequence[Subject], options: CommandOptions, watch: ProgressWatcher) -> Rehearsal:
    """Rehearse several services that scale alike, by simulating the first of them."""
    subject, *others = alike
    service, tasks = subject.service, subject.tasks(options)
    kinds = scenarios(service, tasks, groups=subject.groups(options), seed=options.seed)
    named = _named_scenarios(options, kinds, tasks)
    rows = simulate_all(service, named or list(kinds.values()), own=options.own, compares=bool(named), watch=watch)
    if any(scenario.traffic.message_count > LARGE for scenario in named):
        output.line(f"more than {LARGE:,} messages: only what is deployed was simulated", is_error=True)
    found = mistakes(Experiment(service, tasks, kinds, {**OWN_METRICS, **options.own}))
    queue = service.queue
    if subject.consumer is None and queue is not None and tasks.handler_seconds >= queue.visibility_timeout_seconds:
        timeout = f"the visibility timeout of {queue.visibility_timeout_seconds} s"
        extended = f"whether tasks extend {timeout} while a handler works for {tasks.handler_seconds:g} s: taken for so"
        service = replace(service, assumed=(*service.assumed, *([extended] if service.can_extend else [])))
    return Rehearsal(
        service=service,
        rows=rows,
        mistakes=found,
        advice=subject.advice(named),
        others=[other.service.name for other in others],
    )


def _named_scenarios(options: CommandOptions, kinds: Mapping[str, Scenario], tasks: TaskWork) -> Sequence[Scenario]:
    """Return the traffic that the options name; empty if all kinds are to be tried."""
    if options.profile_name is not None:
        return [importlib.import_module(_RECORDED_TRAFFIC).of_profile(options.profile_name, tasks, seed=options.seed)]
    if options.recording is not None:
        return [importlib.import_module(_RECORDED_TRAFFIC).of_recording(options.recording, tasks)]
    return [kinds[name] for name in dict.fromkeys(options.traffic)]
