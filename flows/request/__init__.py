"""What a run can be asked for, as a form shows it, and what the operator of a machine allows."""
