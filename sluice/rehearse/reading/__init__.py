"""What scales a service, read out of CloudFormation templates, ours or anybody's."""
