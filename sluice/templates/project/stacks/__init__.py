"""The stacks that this project deploys: `stage` composes the library's stacks. Stacks of your own go here."""
