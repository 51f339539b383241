"""Read pages of a file into buffers and copy the rows in them to their places: by io_uring, or by pread on several threads."""
