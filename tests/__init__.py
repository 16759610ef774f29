"""What shows that headrace keeps its promises."""
