"""The image that tasks run: a declared one, or one that is built from the project's Dockerfile at deployment.

A built image is an asset of CDK. Synth hashes its files and does not need Docker. `cdk deploy` builds the image and
pushes it to the repository that `cdk bootstrap` made, unless the repository has an image of the same files. So each
changed file makes a new image, except files that `.dockerignore` names.
AWS: https://docs.aws.amazon.com/cdk/v2/guide/assets.html (read 2026-11-23).
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

import aws_cdk as cdk
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_ecr_assets as assets
from aws_cdk import aws_ecs as ecs
from constructs import Construct

from sluice.constructs.services.dockerfile import copies
from sluice.declaration import Architecture, Consumer, Environment
from sluice.declaration.arguments import check_argument_types
from sluice.declaration.fields.image import image_of
from sluice.declaration.validation import require

_PLATFORMS = {Architecture.X86_64: assets.Platform.LINUX_AMD64, Architecture.ARM64: assets.Platform.LINUX_ARM64}
_PROCESSORS = {Architecture.X86_64: ecs.CpuArchitecture.X86_64, Architecture.ARM64: ecs.CpuArchitecture.ARM64}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskImage:
    """An image that a task or a function can run.

    Args:
        container: the image as ECS takes it.
        architecture: the processors it is for.
        repository: its repository in ECR; None where it is in another registry.
        version: its tag or its digest in that repository.
    """

    container: ecs.ContainerImage
    architecture: Architecture
    repository: ecr.IRepository | None = None
    version: str | None = None

    @property
    def is_in_ecr(self) -> bool:
        """Return whether the image is in ECR, so that a task needs ECR's token to pull it."""
        return self.repository is not None

    @property
    def platform(self) -> ecs.RuntimePlatform:
        """Return the platform that a task definition asks for."""
        return ecs.RuntimePlatform(
            operating_system_family=ecs.OperatingSystemFamily.LINUX, cpu_architecture=_PROCESSORS[self.architecture]
        )


class Images(Construct):
    """The images of an environment's tasks; an image from the project's Dockerfile is built once for all tasks.

    Args:
        environment: as declared.
        project: the folder with the Dockerfile. Its files, except those in `.dockerignore`, are the build context.
    """

    @check_argument_types
    def __init__(self, scope: Construct, id_: str, *, environment: Environment, project: Path) -> None:
        super().__init__(scope, id_)
        self._environment, self._file = environment, project.resolve() / "Dockerfile"

    def of(self, consumer: Consumer) -> TaskImage:
        """Return the image of a consumer's workers.

        Raises:
            ConfigError: the image is to be built, and there is no Dockerfile, or the image would lack the handlers.
        """
        if consumer.image is not None:
            return self._declared_image(consumer.image, f"Image-{consumer.name}")
        shared = self.shared_image
        if self._environment.image is None and consumer.handlers is not None:
            self._require_held(consumer, consumer.handlers)
        return shared

    @cached_property
    def shared_image(self) -> TaskImage:
        """Return the image of the relay, and of each consumer that declares no image.

        Raises:
            ConfigError: the image is to be built, and there is no Dockerfile.
        """
        if self._environment.image is not None:
            return self._declared_image(self._environment.image, "Image")
        require(
            self._environment,
            self._file.is_file(),
            field="image",
            allowed=f"None with a Dockerfile to build it of, and there is no {self._file}; write one, or declare an"
            " image that is in a registry",
        )
        architecture = self._environment.architecture
        asset = assets.DockerImageAsset(
            self, "Image", directory=str(self._file.parent), platform=_PLATFORMS[architecture]
        )
        return TaskImage(
            container=ecs.ContainerImage.from_docker_image_asset(asset),
            architecture=architecture,
            repository=asset.repository,
            version=asset.image_tag,
        )

    def _require_held(self, consumer: Consumer, handlers: str) -> None:
        """Refuse a module of handlers that the built image would lack, as far as the project's files tell.

        Nothing is known about modules that pip installs into the image.
        """
        project = self._file.parent
        file = module_file(handlers, [project, *map(Path, sys.path)])
        if file is None or {"site-packages", "dist-packages"} & {*file.parts}:
            return
        require(
            consumer,
            file.is_relative_to(project),
            field="handlers",
            allowed=f"a module in {project}, of which the image is built, and this one is {file}; move it there, or"
            " declare an image that holds it",
        )
        within = PurePosixPath(file.relative_to(project))
        top = within.parts[0]
        require(
            consumer,
            not self._ignore_strategy.ignores(str(file)),
            field="handlers",
            allowed=f"a module that the image holds, and {project}/.dockerignore keeps {within} back; add a line to it:"
            f" !{top}",
        )
        into = f"{top}/" if within.parts[1:] else "./"
        require(
            consumer,
            copies(self._file.read_text(encoding="utf-8", errors="replace"), within) is not False,
            field="handlers",
            allowed=f"a module that the image holds, and {self._file} does not copy {within}; add to its last stage:"
            f" COPY {top} {into}",
        )

    @cached_property
    def _ignore_strategy(self) -> cdk.IgnoreStrategy:
        """Return the patterns of `.dockerignore`, read as CDK's asset reads them."""
        file = self._file.with_name(".dockerignore")
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else ()
        return cdk.IgnoreStrategy.docker(str(self._file.parent), [line for line in lines if line])

    def _declared_image(self, image: str, id_: str) -> TaskImage:
        """Return a declared image; one in ECR gives its task the right to pull it."""
        parts = image_of(image)
        assert parts is not None, "the declaration refuses what is no image"
        architecture = self._environment.architecture
        if parts.registry is not None and ".dkr.ecr." not in parts.registry:
            return TaskImage(container=ecs.ContainerImage.from_registry(image), architecture=architecture)
        repository = self._repository(id_, parts.registry, parts.repository)
        return TaskImage(
            container=ecs.ContainerImage.from_ecr_repository(repository, parts.version),
            architecture=architecture,
            repository=repository,
            version=parts.version,
        )

    def _repository(self, id_: str, host: str | None, name: str) -> ecr.IRepository:
        """Return a repository of ECR; a host of None is the environment's own account and region."""
        if host is None:
            return ecr.Repository.from_repository_name(self, id_, name)
        account, _, _, region = host.split(".")[:4]
        arn = cdk.Stack.of(self).format_arn(
            service="ecr", account=account, region=region, resource="repository", resource_name=name
        )
        return ecr.Repository.from_repository_attributes(self, id_, repository_arn=arn, repository_name=name)


def module_file(name: str, folders: Sequence[Path]) -> Path | None:
    """Return the file of a module in the first of the folders that has it, without importing it; None if none has."""
    for folder in folders:
        module = folder.resolve().joinpath(*name.split("."))
        for file in (module / "__init__.py", module.with_name(f"{module.name}.py")):
            if file.is_file():
                return file
    return None
