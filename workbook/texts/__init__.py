"""Generated worlds and real data: one file a task."""
