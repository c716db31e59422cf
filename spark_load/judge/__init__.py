"""The verdict: every group checked, opportunities counted, latencies measured. It shares no code with the judged."""
