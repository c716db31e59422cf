"""Read scaled services out of CloudFormation templates, those of Sluice or any others."""
