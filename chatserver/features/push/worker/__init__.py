"""Workers that send pushes."""
