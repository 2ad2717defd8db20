"""What runs inside the measuring process; never imports the runner or the search."""
