"""Tell imports of this old module that a project has its stage in `stacks/stage.py`, of stacks in `sluice.stacks`."""

from sluice.old_names import forward_names

__getattr__ = forward_names(
    __name__,
    hint="a project owns its stage: write stacks/stage.py as `sluice init` does; its stacks are in sluice.stacks",
    Consumers="sluice.constructs.services.consumers",
    EnvironmentStack="sluice.stacks",
    EnvironmentStage="sluice.templates.project.stacks.stage",  # the text that `sluice init` writes
)
