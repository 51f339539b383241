"""Pages of a file into buffers, and the rows in them to their places: through io_uring, or by pread on several threads."""
