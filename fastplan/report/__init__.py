"""Reports: what a plan looks like and how plans differ, for terminals, scripts and browsers."""
