"""What environments become: their CloudFormation templates, resource by resource."""
