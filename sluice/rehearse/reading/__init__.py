"""Read scaled services out of CloudFormation templates, ours or anybody's."""
