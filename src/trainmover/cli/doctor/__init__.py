"""`trainmover doctor`: whether a job could run here, and what to mend."""
