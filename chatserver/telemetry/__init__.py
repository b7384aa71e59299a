"""What a process tells about itself: structured logs and metrics. Never what people write."""
