"""What Lambda's event source mapping promises of a FIFO queue; each test plays the function."""
