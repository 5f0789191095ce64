"""The same algorithms on many machines and GPUs, plugged into existing engines."""
